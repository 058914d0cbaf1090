"""Inductor's output code (call() and its Triton kernels) read as text and evaluated abstractly into a Program.

Nothing is executed and neither torch nor triton is imported: Python's ast, numpy, and the tables in triton_calls.
"""

from graphdiff.lower.inductor.context import SourcePosition
from graphdiff.lower.inductor.function import Input, program_from_output_code
from graphdiff.lower.inductor.pieces import EnginePieces, GraphNode, Parameter, Piece, program_from_pieces

__all__ = ["EnginePieces", "GraphNode", "Input", "Parameter", "Piece", "SourcePosition", "program_from_output_code",
           "program_from_pieces"]
