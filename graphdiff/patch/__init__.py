"""From a comparison to a package a trainer vendors: recipes (data) say where to cut into transformers, the comparison
says which values to align, and the package is written as plain Python."""

from graphdiff.patch.plan import Plan, plan_patch
from graphdiff.patch.write import write_package

__all__ = ["Plan", "plan_patch", "write_package"]
