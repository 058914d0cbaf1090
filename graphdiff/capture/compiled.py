"""A function as Inductor compiles it, for CUDA or for this machine: its output code, read by abstract evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphdiff.capture.function import Function, Recorded, opaque_in
from graphdiff.errors import GraphdiffError

if TYPE_CHECKING:
    from graphdiff.capture.inductor.native import NativeCode

MADE_UP = "gradients of the results are made up, the same for the same sizes"
LEFT_OUT = "the backward (record it with --backward)"


def record_compiled(function: Function, target: str, *, training: bool = False, backward: bool = False,
                    config_patches: dict[str, Any] | None = None) -> Recorded:
    """Compile for `target` (no GPU needed, compiled code never runs), lower the text on the function's own inputs.

    training: compiled with gradients (of every float input, unless the inputs say themselves which need one);
    backward: its backward too, on made-up gradients of the results. config_patches: Inductor's options. `native` is this machine: Inductor's C++ code.
    Raises GraphdiffError if it does not compile, or its code has a construct with no lowering.
    """
    if target == "native":
        return record_native(function, training=training, backward=backward, config_patches=config_patches)
    from torch.utils._pytree import tree_leaves

    from graphdiff.capture.inductor import cuda_code_for_function
    from graphdiff.capture.inductor.options import in_force
    from graphdiff.lower.inductor.context import SourcePosition
    from graphdiff.lower.inductor.function import program_from_output_code

    training = training or backward
    if training:
        function = _with_gradients(function)
    flat = tree_leaves(function.args)
    names = _names(function)
    code = cuda_code_for_function(function.call, function.args, target, training=training, config_patches=config_patches)
    inputs = [_input(item, flat, names) for item in code.inputs]
    sources = {name: SourcePosition(file=file, line=line) for name, (file, line) in code.sources.items()}
    options = in_force(config_patches or {})
    if training and code.backward is None:
        raise _no_backward(function)
    how = f"torch.compile{' with gradients' if training else ''}, Inductor code for {target}"
    if backward:
        refuse_cpu_attention(code.backward.text, function.name)
        program, bits = _with_backward(code, inputs, sources, names)
        return Recorded(program, bits, f"{how}, forward and backward", target, (MADE_UP,),
                        {"output_code": code.text, "backward_code": code.backward.text}, inductor=options)
    program, bits = program_from_output_code(code.text, inputs, name="output_code", sources=sources, modules=code.modules,
                                             kernel_sources=code.kernel_sources)
    notes = (f"{_saved(program, code)} results of the code are saved for the backward",) if training else ()
    _reorder_outputs(program, code, names)
    return Recorded(program, bits, f"{how}, forward" if training else how, target, notes, {"output_code": code.text},
                    (LEFT_OUT,) if training else (), options)


def refuse_cpu_attention(backward: str, where: str) -> None:
    """Raises GraphdiffError if a backward's code for CUDA holds attention as the CPU, where it was traced, has it."""
    if "_scaled_dot_product_flash_attention_for_cpu_backward" in backward:
        raise GraphdiffError("the backward of fused attention is traced on the CPU, as another op than on CUDA", where=where,
                             fix="record the forward alone, or take attention that is written out (--attn eager)")


def _no_backward(function: Function) -> GraphdiffError:
    return GraphdiffError("this function has no backward", where=function.name, fix="return something that depends on a float input")


def _with_gradients(function: Function) -> Function:
    """The function with inputs that need gradients: those that say so, else every float one."""
    import torch
    from torch.utils._pytree import tree_leaves, tree_map

    if any(isinstance(t, torch.Tensor) and t.requires_grad for t in tree_leaves(function.args)):
        return function
    args = tree_map(lambda t: t.detach().clone().requires_grad_() if isinstance(t, torch.Tensor) and t.is_floating_point() else t, function.args)
    return replace(function, args=args)


def _saved(program: Any, code: Any) -> int:
    return max(0, len(program.outputs) - sum(o.kind == "output" for o in code.outputs))


def _with_backward(code: Any, inputs: list[Any], sources: dict[str, Any], names: list[str]) -> tuple[Any, dict]:
    """Forward and backward as one program; the gradients of the results are leaves with generic numbers."""
    from graphdiff.lower.inductor.function import program_from_forward_and_backward
    from graphdiff.lower.inductor.output_code import OutputCode

    program, bits = program_from_forward_and_backward(
        OutputCode(code.text, "output_code", code.kernel_sources), OutputCode(code.backward.text, "backward_code", code.backward.kernel_sources),
        inputs, made_up_gradients(code.backward.text, code.backward.inputs), gradient_names=_gradient_names(inputs), sources=sources, modules=code.modules)
    _results_and_gradients(program, code, names)
    return program, bits


def made_up_gradients(text: str, inputs: Sequence[Any]) -> list[Any]:
    """What stands for the gradients of a function's results: generic numbers, of the sizes that the backward's code tells."""
    from graphdiff.capture.dumps.signature import signature_of
    from graphdiff.capture.dumps.standin import standin
    from graphdiff.lower.inductor.function import Input

    # What the forward saved may go only to ATen, and then the text does not tell its sizes; nothing here asks for them.
    asked = [i for i, item in enumerate(inputs) if item.name.startswith("tangents")]
    found = signature_of(text, 1, "the backward's code", untold=True).arguments
    signature = found if all(found[i] is not None for i in asked) else signature_of(text, 1, "the backward's code").arguments
    wanted = [signature[i] for i in asked]
    return [Input(f"grad_output{i}", standin(t, i, 0), t.dtype, t.strides) for i, t in enumerate(wanted)]


def _gradient_names(inputs: list[Any]) -> list[str]:
    return [getattr(i, "name", "") for i in inputs]


def _results_and_gradients(program: Any, code: Any, names: list[str]) -> None:
    """The function's outputs in its own order, then the gradients in that of its inputs `names` (Dynamo has its own),
    parameters last."""
    places = {f"grad_{name}": i for i, name in enumerate(names)}
    gradients = sorted((o for o in program.outputs if o.name.startswith("grad_")), key=lambda o: places.get(o.name, len(names)))
    program.outputs[:] = [*_results(program, code, names), *gradients]


# ---- this machine


def record_native(function: Function, *, training: bool = False, backward: bool = False,
                  config_patches: dict[str, Any] | None = None) -> Recorded:
    """As this machine's Inductor compiles it: C++ loops. Options and errors are those of `record_compiled`."""
    from graphdiff.capture.inductor.native import native_code_for_function
    from graphdiff.capture.inductor.options import in_force

    training, options = training or backward, in_force(config_patches or {})
    if training:
        function = _with_gradients(function)
    native = native_code_for_function(function.call, function.args, training=training, config_patches=config_patches)
    texts, how = {"output_code": native.code.text}, "torch.compile, Inductor's C++ code"
    if not training:
        program, bits = program_from_native(native, function)
        return Recorded(program, bits, how, "native", (), texts, inductor=options)
    if native.backward is None:
        raise _no_backward(function)
    how = "torch.compile with gradients, Inductor's C++ code"
    if backward:
        program, bits = program_from_native_training(native, function, made_up_gradients(native.backward.code.text, native.backward.inputs))
        return Recorded(program, bits, f"{how}, forward and backward", "native", (MADE_UP, *opaque_in(program)), {**texts, "backward_code": native.backward.code.text}, inductor=options)
    program, bits = program_from_native(native, function, reorder=False)
    notes = (f"{_saved(program, native)} results of the code are saved for the backward",)
    _reorder_outputs(program, native, _names(function))
    return Recorded(program, bits, f"{how}, forward", "native", notes, texts, (LEFT_OUT,), options)


def program_from_native(native: NativeCode, function: Function, *, reorder: bool = True) -> tuple[Any, dict]:
    """Lower native code on the inputs of the function it was made from; with `reorder` its outputs are the function's."""
    from graphdiff.lower.inductor_cpp import program_from_cpp_code

    inputs, sources = _native_inputs(native, function)
    program, bits = program_from_cpp_code(native.code, inputs, name="output_code", sources=sources, modules=native.modules)
    if reorder:
        _reorder_outputs(program, native, _names(function))
    return program, bits


def program_from_native_training(native: NativeCode, function: Function, tangents: Sequence[Any]) -> tuple[Any, dict]:
    """Lower native code and its backward, `tangents` (lower.inductor.Input) being the gradients of the results."""
    from graphdiff.lower.inductor_cpp import program_from_cpp_forward_and_backward

    inputs, sources = _native_inputs(native, function)
    program, bits = program_from_cpp_forward_and_backward(native.code, native.backward.code, inputs, tangents, gradient_names=_gradient_names(inputs),
                                                          sources=sources, modules=native.modules)
    _results_and_gradients(program, native, _names(function))
    return program, bits


def _native_inputs(native: NativeCode, function: Function) -> tuple[list[Any], dict[str, Any]]:
    from torch.utils._pytree import tree_leaves

    from graphdiff.lower.inductor.context import SourcePosition

    flat, names = tree_leaves(function.args), _names(function)
    sources = {name: SourcePosition(file=file, line=line) for name, (file, line) in native.sources.items()}
    return [_input(item, flat, names) for item in native.inputs], sources


# ---- inputs and outputs


def _names(function: Function) -> list[str]:
    from torch.utils._pytree import tree_flatten_with_path

    return [name + "".join(str(p) for p in path) for name, arg in zip(function.names, function.args)
            for path, _ in tree_flatten_with_path(arg)[0]]


def _input(item: Any, flat: list[Any], names: list[str]) -> Any:
    from graphdiff.lower.aten import is_float, raw_bits
    from graphdiff.lower.inductor.function import Input

    # What the code was traced on, as it was before the function ran: the argument itself may have been written to.
    value = item.value if item.value is not None or item.argument is None else flat[item.argument]
    if item.kind == "size":
        return int(value)
    if value is None:
        raise GraphdiffError(f"the compiled code wants {item.name}, which no input holds", fix="pass it as an argument")
    name = names[item.argument] if item.argument is not None else item.parameter or item.name
    dtype = str(value.dtype).removeprefix("torch.")
    dense = value.detach().cpu().contiguous()
    raw = raw_bits(dense) if is_float(dense) else dense.numpy()
    return Input(name, raw, dtype, tuple(value.stride()))


def _reorder_outputs(program: Any, code: Any, names: list[str]) -> None:
    """The function's outputs, in its own order, out of what call() returns; an input that it returns is that leaf."""
    program.outputs[:] = _results(program, code, names)


def _results(program: Any, code: Any, names: list[str]) -> list[Any]:
    """Float results as eager counts them. names: of the function's arguments, as leaves are called."""
    from graphdiff.program import Operand, Output

    by_place = {o.name: o.operand for o in program.outputs}
    leaves = {n.attrs.get("name"): Operand((i,), n.shape) for i, n in enumerate(program.nodes) if n.op == "leaf"}
    found = []
    for o in code.outputs:
        if o.kind == "output":
            found.append(by_place.get(f"output_{o.position}"))
        elif o.kind == "input":
            item = code.inputs[o.position]
            found.append(leaves.get(names[item.argument] if item.argument is not None else item.parameter or item.name))
    return [Output(f"output{i}", operand) for i, operand in enumerate(x for x in found if x is not None)]
