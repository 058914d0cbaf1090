"""Inductor's C++ backend: loop bodies as data and the Python wrapper's text, evaluated abstractly into a Program.

Nothing is executed and torch is not imported. The memory model, arithmetic and wrapper are shared with lower/inductor.
"""

from graphdiff.lower.inductor_cpp.kernel_data import Body, BodyNode, CppCode, CppKernel, Indirect, Loop
from graphdiff.lower.inductor_cpp.wrapper import CppCall, program_from_cpp_code, program_from_cpp_forward_and_backward

__all__ = ["Body", "BodyNode", "CppCall", "CppCode", "CppKernel", "Indirect", "Loop", "program_from_cpp_code",
           "program_from_cpp_forward_and_backward"]
