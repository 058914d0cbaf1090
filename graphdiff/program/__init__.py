"""One side as a dataflow of primitive ops, roundings explicit (see types.py)."""

from graphdiff.program.builder import Builder, Elements, Storage
from graphdiff.program.evaluate import Change, Evaluation, Options
from graphdiff.program.types import Node, Operand, Output, Program, Site

__all__ = ["Builder", "Change", "Elements", "Evaluation", "Node", "Operand", "Options", "Output", "Program", "Site", "Storage"]
