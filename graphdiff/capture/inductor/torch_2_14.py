"""Everything that graphdiff uses of the private API of torch 2.14: as in 2.13 (docs/versions.md tells how that was checked)."""

from graphdiff.capture.inductor.torch_2_13 import (
    code_for_function,
    code_for_graph,
    compile_by_inductor,
    native_code_for_function,
    option_types,
    rounding_options,
    watched_graph,
)

__all__ = [
    "code_for_function", "code_for_graph", "compile_by_inductor", "native_code_for_function", "option_types",
    "rounding_options", "watched_graph",
]  # fmt: skip
