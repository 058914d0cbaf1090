"""Index expressions: Python arithmetic over loop variables and sizes, evaluated on integer arrays."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.Div: operator.truediv,
}
COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
CALLS: dict[str, Callable[..., Any]] = {
    "max": lambda *a: functools.reduce(np.maximum, a), "min": lambda *a: functools.reduce(np.minimum, a),
    "abs": np.abs, "int": lambda x: x, "math.trunc": lambda x: x, "float": lambda x: x,
}


class NoIndex(Exception):
    """An expression with a construct that has no evaluation; the text says which."""


@functools.cache
def parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise NoIndex(text) from None


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """An integer or integer array. Raises NoIndex for what is no arithmetic, KeyError for an unknown name."""
    return _value(parsed(text), names)


def _value(e: ast.expr, names: Mapping[str, Any]) -> Any:
    match e:
        case ast.Constant(value=int() | bool()):
            return e.value
        case ast.Name():
            return names[e.id]
        case ast.BinOp() if type(e.op) in BINARY:
            return BINARY[type(e.op)](_value(e.left, names), _value(e.right, names))
        case ast.UnaryOp(op=ast.USub()):
            return -_value(e.operand, names)
        case ast.UnaryOp(op=ast.UAdd()):
            return _value(e.operand, names)
        case ast.UnaryOp(op=ast.Not()):
            return np.logical_not(_value(e.operand, names))
        case ast.Compare() if len(e.ops) == 1 and type(e.ops[0]) in COMPARE:
            return COMPARE[type(e.ops[0])](_value(e.left, names), _value(e.comparators[0], names))
        case ast.BoolOp():
            parts = [_value(v, names) for v in e.values]
            return functools.reduce(np.logical_and if isinstance(e.op, ast.And) else np.logical_or, parts)
        case ast.IfExp():
            return np.where(_value(e.test, names), _value(e.body, names), _value(e.orelse, names))
        case ast.Call() if ast.unparse(e.func) in CALLS and not e.keywords:
            return CALLS[ast.unparse(e.func)](*[_value(a, names) for a in e.args])
    raise NoIndex(ast.unparse(e))
