"""A function as Inductor compiles it: its CUDA output code, read by abstract evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphdiff.capture.function import Function, Recorded
from graphdiff.errors import GraphdiffError

if TYPE_CHECKING:
    from graphdiff.capture.inductor.native import NativeCode


def record_compiled(function: Function, target: str) -> Recorded:
    """Compile for `target` (no GPU needed, nothing runs there), lower the text on the function's own inputs.

    `native` is this machine: Inductor's C++ code. Raises GraphdiffError if it does not compile, or its code has a
    construct with no lowering.
    """
    if target == "native":
        return record_native(function)
    from torch.utils._pytree import tree_leaves

    from graphdiff.capture.inductor import cuda_code_for_function
    from graphdiff.lower.inductor.context import SourcePosition
    from graphdiff.lower.inductor.function import program_from_output_code

    flat = tree_leaves(function.args)
    names = _names(function)
    code = cuda_code_for_function(function.call, function.args, target)
    inputs = [_input(item, flat, names) for item in code.inputs]
    sources = {name: SourcePosition(file=file, line=line) for name, (file, line) in code.sources.items()}
    program, bits = program_from_output_code(code.text, inputs, name="output_code", sources=sources, modules=code.modules,
                                             kernel_sources=code.kernel_sources)
    _reorder_outputs(program, code)
    return Recorded(program, bits, f"torch.compile, Inductor code for {target}", target, (), {"output_code": code.text})


def record_native(function: Function) -> Recorded:
    """As this machine's Inductor compiles it: C++ loops."""
    from graphdiff.capture.inductor.native import native_code_for_function

    native = native_code_for_function(function.call, function.args)
    program, bits = program_from_native(native, function)
    return Recorded(program, bits, "torch.compile, Inductor's C++ code", "native", (), {"output_code": native.code.text})


def program_from_native(native: NativeCode, function: Function) -> tuple[Any, dict]:
    """Lower native code on the inputs of the function it was made from."""
    from torch.utils._pytree import tree_leaves

    from graphdiff.lower.inductor.context import SourcePosition
    from graphdiff.lower.inductor_cpp import program_from_cpp_code

    flat, names = tree_leaves(function.args), _names(function)
    inputs = [_input(item, flat, names) for item in native.inputs]
    sources = {name: SourcePosition(file=file, line=line) for name, (file, line) in native.sources.items()}
    program, bits = program_from_cpp_code(native.code, inputs, name="output_code", sources=sources, modules=native.modules)
    _reorder_outputs(program, native)
    return program, bits


def _names(function: Function) -> list[str]:
    from torch.utils._pytree import tree_flatten_with_path

    return [name + "".join(str(p) for p in path) for name, arg in zip(function.names, function.args)
            for path, _ in tree_flatten_with_path(arg)[0]]


def _input(item: Any, flat: list[Any], names: list[str]) -> Any:
    from graphdiff.lower.aten import is_float, raw_bits
    from graphdiff.lower.inductor.function import Input

    value = flat[item.argument] if item.argument is not None else item.value
    if item.kind == "size":
        return int(value)
    if value is None:
        raise GraphdiffError(f"the compiled code wants {item.name}, which no input holds", fix="pass it as an argument")
    name = names[item.argument] if item.argument is not None else item.parameter or item.name
    dtype = str(value.dtype).removeprefix("torch.")
    dense = value.detach().cpu().contiguous()
    raw = raw_bits(dense) if is_float(dense) else dense.numpy()
    return Input(name, raw, dtype, tuple(value.stride()))


def _reorder_outputs(program: Any, code: Any) -> None:
    """The function's outputs, in its own order, out of what call() returns."""
    from graphdiff.program import Output

    by_place = {o.name: o for o in program.outputs}
    wanted = [by_place.get(f"output_{o.position}") for o in code.outputs if o.kind == "output"]
    if all(o is not None for o in wanted) and wanted:
        program.outputs[:] = [Output(f"output{i}", o.operand) for i, o in enumerate(wanted)]
