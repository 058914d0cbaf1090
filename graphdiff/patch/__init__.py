"""From a comparison to a package a trainer vendors: recipes (data) say where to cut into transformers, the comparison
says which values to align, and the package is written as plain Python."""

from graphdiff.patch.folder import check_folder
from graphdiff.patch.kernels import Kernels, kernels_for
from graphdiff.patch.plan import Plan, plan_patch
from graphdiff.patch.write import ops_of, write_package

__all__ = ["Kernels", "Plan", "check_folder", "kernels_for", "ops_of", "plan_patch", "write_package"]
