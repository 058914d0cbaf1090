"""The Python wrapper of native code: as for CUDA, but its kernels are C++ with their loop bodies as data."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphdiff.errors import GraphdiffError
from graphdiff.lower.inductor.context import Context, SourcePosition
from graphdiff.lower.inductor.function import Input, argument, run_forward_and_backward
from graphdiff.lower.inductor.output_code import Call, Frame, OutputCode
from graphdiff.lower.inductor.values import TORCH_FLOATS, Tensor
from graphdiff.lower.inductor_cpp import extern
from graphdiff.lower.inductor_cpp.kernel_data import CppCode, CppKernel
from graphdiff.lower.inductor_cpp.loop import launch
from graphdiff.program.builder import Builder
from graphdiff.program.types import Program

Observer = Callable[[CppKernel, list[Any], Builder], None]
"""Told after every launch: the kernel, its arguments and the builder."""


class CppCall(Call):
    """Evaluates `call(args)`; kernels are taken in the order of their launches."""

    def __init__(self, ctx: Context, code: CppCode, name: str, handlers: extern.Handlers | None = None,
                 observe: Observer | None = None) -> None:
        super().__init__(ctx, OutputCode(code.text, name))
        self.launches = list(code.launches)
        self.names = {k.name for k in code.launches}
        self.handlers, self.observe = {**extern.HANDLERS, **(handlers or {})}, observe

    def run(self, arguments: list[Any], function: str = "call") -> list[Any]:
        definition = self.code.functions[function]
        parameter = definition.args.args[-1].arg
        return list(CppFrame(self, {parameter: list(arguments)}).block(definition.body) or ())

    def launch(self, name: str, arguments: list[Any]) -> None:
        if not self.launches or self.launches[0].name != name:
            raise self.ctx.broken(f"{name} is launched, {self.launches[0].name if self.launches else 'nothing'} was recorded")
        kernel = self.launches.pop(0)
        line = self.ctx.line
        self.ctx.enter(name, tuple(dict.fromkeys(o for loop in kernel.loops for b in loop.bodies for o in b.origin)), line)
        try:
            launch(self.ctx, kernel, arguments)
        finally:
            self.ctx.enter("", (), line)
        if self.observe is not None:
            self.observe(kernel, arguments, self.ctx.builder)


class CppFrame(Frame):
    """The names of one function of the wrapper."""

    call: CppCall

    def called(self, e: ast.Call) -> Any:
        name = ast.unparse(e.func)
        if name in self.call.names:
            return self.call.launch(name, [self.value(a) for a in e.args])
        if name == "empty_strided_cpu_pinned":
            return self.allocate(*[self.value(a) for a in e.args[:3]])
        if name.startswith("async_compile") or name in extern.IGNORED:
            return None
        if name.startswith("cpp_"):
            raise GraphdiffError("a C++ GEMM template has no lowering: what it rounds between its tiles is not known",
                                 where=f"{name}, {self.ctx.where}", fix="switch max_autotune off, so that ATen does the matmul")
        return super().called(e)

    def extern(self, e: ast.Call, name: str) -> Any:
        handler = self.call.handlers.get(extern.plain_name(name))
        if handler is None:
            return super().extern(e, name)
        line = self.ctx.line
        positional, keywords = [self.value(a) for a in e.args], {k.arg: self.value(k.value) for k in e.keywords}
        short = extern.plain_name(name)
        self.ctx.enter(short, self.code.origin(line), line)
        self.ctx.at(line)
        try:
            return handler(self.ctx, *positional, **keywords)
        except IndexError as error:
            raise self.ctx.broken(str(error)) from None
        finally:
            self.ctx.enter("", (), line)


def program_from_cpp_code(code: CppCode, inputs: Sequence[Input | int], *, name: str = "",
                          sources: Mapping[str, SourcePosition] | None = None, modules: Mapping[str, str] | None = None,
                          output_names: Sequence[str] = (), observe: Observer | None = None) -> tuple[Program, dict]:
    """The program of `call(args)` for args in order (integers are symbolic sizes), and its leaves' bits.

    Outputs are the float tensors it returns, named by output_names, else `output_0` ... by position. Raises
    GraphdiffError naming the construct, kernel and node that has no lowering.
    """
    builder = Builder()
    ctx = Context(builder, name, sources or {}, modules or {})
    returned = CppCall(ctx, code, name, observe=observe).run([argument(builder, x) for x in inputs])
    for i, tensor in enumerate(returned):
        if isinstance(tensor, Tensor) and tensor.dtype in TORCH_FLOATS:
            try:
                builder.output(output_names[i] if i < len(output_names) else f"output_{i}", tensor.read())
            except IndexError as error:
                raise GraphdiffError(f"output {i}: {error}", where=name) from None
    return builder.program, builder.leaf_bits


def program_from_cpp_forward_and_backward(forward: CppCode, backward: CppCode, inputs: Sequence[Input | int], tangents: Sequence[Input], *,
                                          gradient_names: Sequence[str] = (), sources: Mapping[str, SourcePosition] | None = None,
                                          modules: Mapping[str, str] | None = None) -> tuple[Program, dict]:
    """Both in one program (sites say `output_code` or `backward_code`), and its leaves' bits.

    tangents: gradients of the forward's results, the backward's last arguments. Outputs: `output_0` ... of the forward
    without what it saved, then `grad_NAME` per input that has a gradient. Raises GraphdiffError as `program_from_cpp_code`.
    """
    builder = Builder()
    first, second = (CppCall(Context(builder, name, sources or {}, modules or {}), code, name)
                     for name, code in (("output_code", forward), ("backward_code", backward)))
    run_forward_and_backward(builder, first, second, [argument(builder, x) for x in inputs], [argument(builder, t) for t in tangents], gradient_names)
    return builder.program, builder.leaf_bits
