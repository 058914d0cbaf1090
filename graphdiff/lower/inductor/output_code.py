"""One output-code module: its kernels, and its `call` evaluated abstractly."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from graphdiff.errors import GraphdiffError
from graphdiff.lower.inductor import extern
from graphdiff.lower.inductor.arithmetic import COMPARE, PYTHON_OPS
from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.kernel_source import KernelSource, parse_kernel
from graphdiff.lower.inductor.tensor_methods import METHODS, part
from graphdiff.lower.inductor.triton_kernel import launch
from graphdiff.lower.inductor.values import TORCH_FLOATS, TORCH_INTS, Tensor, new_storage

SOURCE_NODES = re.compile(r"^\s*# (?:Topologically Sorted|Unsorted) Source Nodes: \[(.*?)\]")
CHECKS = frozenset({"assert_tensor_metadata", "assert_alignment", "torch.cuda.set_device", "args.clear", "get_raw_stream",
                    "torch.cuda.synchronize", "run_intermediate_hooks"})
PYTHON = {"max": max, "min": min, "abs": abs, "int": int, "len": len, "range": range}


class OutputCode:
    """A module's text, parsed: `call`, the partitions it runs, and its Triton kernels (parsed when launched)."""

    def __init__(self, text: str, name: str = "", kernel_sources: Mapping[str, Sequence[str]] | None = None) -> None:
        self.name, self.lines, self.kernel_sources = name, text.splitlines(), kernel_sources or {}
        try:
            module = ast.parse(text)
        except SyntaxError as error:
            raise GraphdiffError(f"the output code does not parse: {error.msg}", where=f"{name} line {error.lineno}",
                                 fix="give Inductor's Python output code, as captured") from None
        functions = {f.name: f for f in ast.walk(module) if isinstance(f, ast.FunctionDef)}
        if "call" not in functions:
            raise GraphdiffError("the output code has no call()", where=name,
                                 fix="give Inductor's Python output code (not C++ wrapper code)")
        self.functions = functions
        self.sources: dict[str, tuple[ast.Constant, int]] = {}
        self.partitions: list[str] = []
        for statement in module.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
                self._module_assignment(ast.unparse(statement.targets[0]), statement.value)
        self._kernels: dict[str, KernelSource] = {}

    def _module_assignment(self, name: str, call: ast.Call) -> None:
        function = ast.unparse(call.func)
        if function == "async_compile.triton" and isinstance(call.args[1], ast.Constant):
            self.sources[name] = (call.args[1], call.lineno)
        elif function == "Runner" and call.keywords:
            self.partitions = [ast.unparse(p) for p in call.keywords[0].value.elts]

    def arguments(self) -> list[str]:
        """What call() names its arguments."""
        for s in self.functions["call"].body:
            if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Tuple | ast.List) and ast.unparse(s.value) == self.functions["call"].args.args[-1].arg:
                return [ast.unparse(t) for t in s.targets[0].elts]
        return []

    def kernel(self, name: str) -> KernelSource:
        if name not in self._kernels:
            constant, line = self.sources[name]
            origin = tuple(self.kernel_sources.get(name, ())) or self.origin(line)
            self._kernels[name] = parse_kernel(name, constant.value, constant.lineno - 1, origin)
        return self._kernels[name]

    def origin(self, line: int) -> tuple[str, ...]:
        """FX nodes named in the comment block directly above a (1-based) line."""
        for text in reversed(self.lines[max(0, line - 400):line - 1]):
            match = SOURCE_NODES.match(text)
            if match:
                return tuple(n.strip() for n in match[1].split(",") if n.strip())
            if not text.lstrip().startswith("#") and "get_raw_stream" not in text and "_numel" not in text:
                break
        return ()


class Call:
    """Evaluates `call(args)`: tensors are views of memory, sizes are integers."""

    def __init__(self, ctx: Context, code: OutputCode) -> None:
        self.ctx, self.code = ctx, code

    def run(self, arguments: list[Any], function: str = "call") -> list[Any]:
        """The returned values. Raises GraphdiffError for anything without lowering."""
        definition = self.code.functions[function]
        parameter = definition.args.args[-1].arg
        return list(Frame(self, {parameter: list(arguments)}).block(definition.body) or ())


class Frame:
    """The names of one function of the output code."""

    def __init__(self, call: Call, environment: dict[str, Any]) -> None:
        self.call, self.ctx, self.code, self.env = call, call.ctx, call.code, environment

    def block(self, body: list[ast.stmt]) -> Any:
        """The value of a return statement, else None."""
        for s in body:
            self.ctx.line = s.lineno
            if isinstance(s, ast.Return):
                with self.ctx.following(s):
                    return self.value(s.value) if s.value else ()
            if isinstance(s, ast.With | ast.If):
                inner = s.body if isinstance(s, ast.With) or self.value(s.test) else s.orelse
                if (returned := self.block(inner)) is not None:
                    return returned
                continue
            with self.ctx.following(s):
                self.statement(s)
        return None

    def statement(self, s: ast.stmt) -> None:
        """One statement without statements inside."""
        if isinstance(s, ast.Assign):
            value = self.value(s.value)
            for target in s.targets:
                self.bind(target, value)
        elif isinstance(s, ast.Expr):
            self.value(s.value)
        elif isinstance(s, ast.Delete):
            for target in s.targets:
                self.env.pop(ast.unparse(target), None)
        elif isinstance(s, ast.Raise):
            raise self.ctx.broken(f"a check of the code fails on these inputs: `{ast.unparse(s)[:80]}`")
        elif not isinstance(s, ast.Pass | ast.Global | ast.Import | ast.ImportFrom | ast.Assert):
            raise self.ctx.unsupported(f"the statement `{ast.unparse(s)[:80]}`")

    def bind(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.env[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List) and len(target.elts) == len(value):
            for t, v in zip(target.elts, value):
                self.bind(t, v)
        else:
            raise self.ctx.unsupported(f"assignment to `{ast.unparse(target)}`")

    def value(self, e: ast.expr) -> Any:
        match e:
            case ast.Constant():
                return e.value
            case ast.Name():
                if e.id not in self.env:
                    raise self.ctx.broken(f"{e.id} is used before it is set or after it is freed")
                return self.env[e.id]
            case ast.Tuple() | ast.List():
                return [self.value(x) for x in e.elts]
            case ast.BinOp():
                return PYTHON_OPS[type(e.op).__name__](self.value(e.left), self.value(e.right))
            case ast.UnaryOp():
                value = self.value(e.operand)
                return -value if isinstance(e.op, ast.USub) else not value
            case ast.Compare() if len(e.ops) == 1 and type(e.ops[0]).__name__ in COMPARE:
                return COMPARE[type(e.ops[0]).__name__](self.value(e.left), self.value(e.comparators[0]))
            case ast.Subscript(slice=ast.Slice(lower=ast.expr() as lower, upper=ast.expr() as upper, step=None)):
                return part(self.ctx, self.value(e.value), self.value(lower), self.value(upper))
            case ast.Subscript():
                return self.value(e.value)[self.value(e.slice)]
            case ast.IfExp():
                return self.value(e.body if self.value(e.test) else e.orelse)
            case ast.Attribute():
                return self.attribute(e)
            case ast.Call():
                return self.called(e)
        raise self.ctx.unsupported(f"`{ast.unparse(e)[:80]}`")

    def attribute(self, e: ast.Attribute) -> Any:
        name = ast.unparse(e)
        if name.startswith("torch.") and e.attr in TORCH_FLOATS | TORCH_INTS | {"float64", "strided"}:
            return e.attr
        raise self.ctx.unsupported(f"`{name}`")

    def called(self, e: ast.Call) -> Any:
        name = ast.unparse(e.func)
        if name in CHECKS:
            return None
        if name in ("assert_size_stride", "assert_size_stride_grouped"):
            return self.check_layouts(e)
        if name.endswith(".run") and name[:-4] in self.code.sources:
            kernel = self.code.kernel(name[:-4])
            return launch(self.ctx, kernel, [self.value(a) for a in e.args])
        if name.startswith(("self.partitions[", "partitions[")):
            return self.call.run(self.value(e.args[0]), self.code.partitions[self.value(e.func.slice)])
        if name in ("empty_strided_cuda", "empty_strided_cpu", "empty_strided"):
            return self.allocate(*[self.value(a) for a in e.args[:3]])
        if name == "reinterpret_tensor":
            base, shape, strides, *offset = [self.value(a) for a in e.args]
            return Tensor(base.storage, tuple(shape), tuple(strides), base.offset + (offset[0] if offset else 0))
        if name in ("copy_if_misaligned", "clone_if_misaligned"):
            return self.value(e.args[0])
        if name in PYTHON:
            return PYTHON[name](*[self.value(a) for a in e.args])
        if name == "float":
            return float(ast.literal_eval(e.args[0]))
        if isinstance(e.func, ast.Attribute) and e.func.attr in METHODS and not name.startswith(("torch.", "aten.", "extern_kernels.")):
            return self.method(e, e.func.attr)
        return self.extern(e, name)

    def check_layouts(self, e: ast.Call) -> None:
        """Of one tensor, or of several (tensors), (sizes), (strides), as torch 2.14 writes them; of one the brackets are none."""
        if not isinstance(e.args[0], ast.Tuple):
            return self.check_layout(e.args[0], *[self.value(a) for a in e.args[1:3]])
        for tensor, shape, strides in zip(e.args[0].elts, *[self.value(a) for a in e.args[1:3]], strict=True):
            self.check_layout(tensor, shape, strides)
        return None

    def check_layout(self, named: ast.expr, shape: list[int], strides: list[int]) -> None:
        """What follows reads memory by this layout: another one would be other elements."""
        x = self.value(named)
        if isinstance(x, Tensor) and 0 not in x.shape and (x.shape != tuple(shape) or any(a != b for n, a, b in zip(shape, x.strides, strides) if n > 1)):
            raise self.ctx.broken(f"{ast.unparse(named)} has shape {list(x.shape)} and strides {list(x.strides)}, where the code states {shape} and {strides}")

    def allocate(self, shape: list[int], strides: list[int], dtype: str) -> Tensor:
        size = 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if all(shape) else 0
        try:
            return Tensor(new_storage(size, dtype), tuple(shape), tuple(strides))
        except KeyError:
            raise self.ctx.unsupported(f"a buffer of {dtype}") from None

    def method(self, e: ast.Call, name: str) -> Any:
        """A method of a tensor: what it computes is no kernel's."""
        owner, line = self.value(e.func.value), self.ctx.line
        self.ctx.enter(name, self.code.origin(line), line)
        self.ctx.at(line)
        try:
            return METHODS[name](self.ctx, owner, *map(self.value, e.args), **{k.arg: self.value(k.value) for k in e.keywords})
        finally:
            self.ctx.enter("", (), line)

    def extern(self, e: ast.Call, name: str) -> Any:
        """extern_kernels.* and fallbacks to ATen: by the table in extern.py."""
        handler = extern.lookup(name)
        if handler is None:
            raise self.ctx.unsupported(name)
        line = self.ctx.line
        positional, keywords = [self.value(a) for a in e.args], {k.arg: self.value(k.value) for k in e.keywords}
        short = name.removeprefix("extern_kernels.").removeprefix("torch.ops.")
        self.ctx.enter(short, self.code.origin(line), line)
        out = keywords.get("out")
        target = next((n for n, v in self.env.items() if v is out), "") if out is not None else ""
        self.ctx.at(line, target)
        try:
            return handler(self.ctx, *positional, **keywords)
        except IndexError as error:
            raise self.ctx.broken(str(error)) from None
        except TypeError as error:
            if "argument" not in str(error):
                raise
            raise self.ctx.unsupported(f"{name} ({error})") from None
        finally:
            self.ctx.enter("", (), line)
