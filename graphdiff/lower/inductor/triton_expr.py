"""Expressions of a Triton kernel."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdiff.lower.inductor.arithmetic import Value, binary, compare, convert, is_number, layout, unary
from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.kernel_source import KernelSource
from graphdiff.lower.inductor.triton_calls import CALLS, Dtype, method
from graphdiff.lower.inductor.values import Floats, Ints

MODULES = frozenset({"tl", "libdevice", "tl_math", "triton_helpers"})


@dataclass(frozen=True)
class Programs:
    """What tl.program_id(axis) and tl.num_programs(axis) are, by axis."""

    ids: tuple[Value, Value, Value]
    counts: tuple[int, int, int]


class Expressions:
    """Evaluates expressions in an environment (shared with the statements that fill it)."""

    def __init__(self, ctx: Context, kernel: KernelSource, environment: dict[str, Any], programs: Programs) -> None:
        self.ctx, self.kernel, self.env, self.programs = ctx, kernel, environment, programs

    def value(self, e: ast.expr) -> Value:
        handler = getattr(self, f"_{type(e).__name__.lower()}", None)
        if handler is None:
            raise self.ctx.unsupported(f"the expression `{ast.unparse(e)[:80]}`")
        return handler(e)

    def _constant(self, e: ast.Constant) -> Value:
        return e.value

    def _name(self, e: ast.Name) -> Value:
        if e.id in self.kernel.helpers:
            return e.id
        if e.id not in self.env:
            raise self.ctx.broken(f"{e.id} is used before it is set")
        return self.env[e.id]

    def _list(self, e: ast.List) -> list[Value]:
        return [self.value(x) for x in e.elts]

    def _tuple(self, e: ast.Tuple) -> tuple[Value, ...]:
        return tuple(self.value(x) for x in e.elts)

    def _attribute(self, e: ast.Attribute) -> Value:
        if isinstance(e.value, ast.Name) and e.value.id == "tl":
            return Dtype(e.attr)
        if ast.unparse(e.value) == "tl.PropagateNan":
            return e.attr
        owner = self.value(e.value)
        if e.attr == "shape" and hasattr(owner, "shape"):
            return list(owner.shape)
        if e.attr == "dtype":
            if isinstance(owner, Floats):
                return Dtype({"float8_e4m3fn": "float8e4nv", "float8_e5m2": "float8e5"}.get(owner.dtype, owner.dtype))
            if isinstance(owner, Ints):
                return Dtype("int1" if owner.values.dtype == bool else owner.dtype or "int64")
        raise self.ctx.unsupported(f"`{ast.unparse(e)}`")

    def _binop(self, e: ast.BinOp) -> Value:
        return binary(self.ctx, type(e.op).__name__, self.value(e.left), self.value(e.right))

    def _unaryop(self, e: ast.UnaryOp) -> Value:
        return unary(self.ctx, type(e.op).__name__, self.value(e.operand))

    def _compare(self, e: ast.Compare) -> Value:
        if len(e.ops) != 1:
            raise self.ctx.unsupported("a chained comparison")
        operator, left, right = type(e.ops[0]).__name__, self.value(e.left), self.value(e.comparators[0])
        if isinstance(left, Dtype) and isinstance(right, Dtype) and operator in ("Is", "Eq", "IsNot", "NotEq"):
            return (left == right) == (operator in ("Is", "Eq"))
        return compare(self.ctx, operator, left, right)

    def _boolop(self, e: ast.BoolOp) -> Value:
        """Of Python's own numbers, left to right; a kernel's values are joined by & and |."""
        for part in e.values:
            value = self.value(part)
            if not is_number(value):
                raise self.ctx.unsupported(f"`{ast.unparse(e)[:80]}`")
            if bool(value) == isinstance(e.op, ast.Or):
                break
        return value

    def _ifexp(self, e: ast.IfExp) -> Value:
        return self.value(e.body if self.value(e.test) else e.orelse)

    def _subscript(self, e: ast.Subscript) -> Value:
        owner = self.value(e.value)
        if isinstance(owner, (list, tuple)):
            return owner[self.value(e.slice)]
        parts = e.slice.elts if isinstance(e.slice, ast.Tuple) else [e.slice]
        index = []
        for p in parts:
            if isinstance(p, ast.Slice) and p.lower is None and p.upper is None and p.step is None:
                index.append(slice(None))
            elif isinstance(p, ast.Constant) and p.value is None:
                index.append(np.newaxis)
            else:
                raise self.ctx.unsupported(f"the index `{ast.unparse(e)}`")
        return layout(owner, lambda a: a[tuple(index)])

    def _call(self, e: ast.Call) -> Value:
        positional = [self.value(a) for a in e.args]
        keywords = {k.arg: self.value(k.value) for k in e.keywords}
        if isinstance(e.func, ast.Name):
            name = e.func.id
            if name in ("min", "max") and not all(map(is_number, positional)):
                return self._checked(e, {"min": "minimum", "max": "maximum"}[name], positional, keywords)
            if name in ("range", "float", "int", "bool", "min", "max", "abs"):
                return {"range": range, "float": float, "int": int, "bool": bool, "min": min, "max": max,
                        "abs": abs}[name](*positional)
        elif isinstance(e.func, ast.Attribute):
            module = e.func.value
            if not (isinstance(module, ast.Name) and module.id in MODULES or ast.unparse(module) in ("tl.math", "triton.language")):
                return method(self, e.func.attr, self.value(module), positional, keywords)
            name = e.func.attr
        else:
            name = ""
        if name not in CALLS:
            raise self.ctx.unsupported(ast.unparse(e.func))
        return self._checked(e, name, positional, keywords)

    def _checked(self, e: ast.Call, name: str, positional: list[Value], keywords: dict[str, Value]) -> Value:
        try:
            return CALLS[name](self, *positional, **keywords)
        except TypeError as error:
            if "argument" not in str(error):
                raise
            raise self.ctx.unsupported(f"`{ast.unparse(e)[:80]}` ({error})") from None
