"""The only kernels that are compiled: functions made of the statements, expressions, names and calls listed here.

A capture may come from anywhere, and Triton's frontend needs its kernel as a Python function. So no text of a capture
is ever loaded: it is parsed, every node of the tree is held against this list, and new text is written from the tree,
without decorators, defaults and annotations of its own. What remains defines functions and runs nothing; what Triton
evaluates of it while compiling are calls of the names below.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from graphdiff.lower.inductor.triton_calls import CALLS
from graphdiff.lower.inductor.values import TL_FLOATS, TL_INTS

MODULES = frozenset({"tl", "libdevice", "tl_math", "triton_helpers"})
COMPILED_ONLY = frozenset({"x_grid_barrier", "if_mask", "pointer_type"})
"""Calls that a program never makes, because it splits no rows, and that stand in the text of cooperative reductions."""
CALLED = (frozenset(CALLS) | COMPILED_ONLY) - {"set_driver_to_gpu"}
METHODS = frozenset({"to", "broadcast_to", "reshape", "view", "permute", "trans", "sum", "expand_dims"})
PYTHON = frozenset({"range", "float", "int", "bool", "min", "max", "abs"})
LOOPS = frozenset({"range", "tl.range", "tl.static_range"})
DTYPES = frozenset(TL_FLOATS) | frozenset(TL_INTS) | {"float64"}
RESERVED = MODULES | PYTHON | {"triton"}

NAME = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]{0,200}")
LONGEST_TEXT, MOST_NODES, WIDEST_INTEGER = 1000, 60_000, 2**64
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift, ast.BitOr, ast.BitXor,
             ast.BitAnd, ast.USub, ast.UAdd, ast.Not, ast.Invert, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)


class Refused(Exception):
    """What stands in the way, in words; `line` is of the kernel's own text."""

    def __init__(self, what: str, node: ast.AST | None = None) -> None:
        self.line = getattr(node, "lineno", 0)
        super().__init__(f"{what} (line {self.line} of the kernel)" if self.line else what)


def check(functions: Iterable[ast.FunctionDef]) -> None:
    """Raises Refused unless every function (the kernel and its helpers) is made of what is listed here."""
    functions = list(functions)
    nodes = sum(1 for f in functions for _ in ast.walk(f))
    if nodes > MOST_NODES:
        raise Refused(f"a kernel of {nodes} parts, more than {MOST_NODES}")
    names = [f.name for f in functions]
    if len(set(names)) != len(names):
        raise Refused("two functions of one name")
    for f in functions:
        _Function(f, frozenset(names)).check()


class _Function:
    def __init__(self, function: ast.FunctionDef, functions: frozenset[str]) -> None:
        self.function, self.functions = function, functions
        arguments = function.args
        self.names = {a.arg for a in arguments.args}
        self.names |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}

    def check(self) -> None:
        f, a = self.function, self.function.args
        if type(f) is not ast.FunctionDef or getattr(f, "type_params", None) or f.returns:
            raise Refused("a function with more than a name and parameters", f)
        if a.posonlyargs or a.kwonlyargs or a.vararg or a.kwarg or a.defaults or a.kw_defaults:
            raise Refused("parameters with defaults, or of another kind than plain ones", f)
        for parameter in a.args:
            if parameter.annotation is not None and ast.unparse(parameter.annotation) != "tl.constexpr":
                raise Refused("a parameter annotated with something else than tl.constexpr", parameter)
        for name in (f.name, *self.names):
            if not NAME.fullmatch(name) or name in RESERVED or name in self.functions - {f.name} or name == f.name and name in self.names:
                raise Refused(f"the name {name[:60]!r} for a function or variable", f)
        self.body(f.body)

    # ---- statements
    def body(self, statements: list[ast.stmt]) -> None:
        for s in statements:
            match s:
                case ast.Assign(targets=[target], value=value):
                    self.target(target)
                    self.expression(value)
                case ast.AnnAssign(target=ast.Name(), value=ast.expr() as value, simple=1) if ast.unparse(s.annotation) == "tl.constexpr":
                    self.expression(value)
                case ast.AugAssign(target=ast.Name(), op=op, value=value) if isinstance(op, OPERATORS):
                    self.expression(value)
                case ast.Expr(value=ast.Call() as call):
                    self.expression(call)
                case ast.For(target=ast.Name(), iter=ast.Call() as call, orelse=[]) if ast.unparse(call.func) in LOOPS:
                    self.expression(call)
                    self.body(s.body)
                case ast.If():
                    self.expression(s.test)
                    self.body(s.body)
                    self.body(s.orelse)
                case ast.Return():
                    self.expressions([s.value] if s.value is not None else [])
                case ast.Pass():
                    pass
                case _:
                    raise Refused(f"the statement `{_text(s)}`", s)

    def target(self, target: ast.expr) -> None:
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        if not all(isinstance(p, ast.Name) for p in parts):
            raise Refused(f"an assignment to `{_text(target)}`", target)

    # ---- expressions
    def expression(self, e: ast.expr) -> None:
        match e:
            case ast.Constant():
                self.constant(e)
            case ast.Name():
                if e.id not in self.names:
                    raise Refused(f"the name {e.id[:60]!r}", e)
            case ast.List() | ast.Tuple():
                self.expressions(e.elts)
            case ast.BinOp() if isinstance(e.op, OPERATORS):
                self.expressions([e.left, e.right])
            case ast.UnaryOp() if isinstance(e.op, OPERATORS):
                self.expression(e.operand)
            case ast.BoolOp():
                self.expressions(e.values)
            case ast.Compare(ops=[op], comparators=[right]) if isinstance(op, OPERATORS):
                self.expressions([e.left, right])
            case ast.IfExp():
                self.expressions([e.test, e.body, e.orelse])
            case ast.Attribute(value=ast.Name(id="tl")) if "tl" not in self.names and e.attr in DTYPES:
                pass
            case ast.Attribute(value=ast.Name(), attr="shape" | "dtype"):
                self.expression(e.value)
            case ast.Subscript():
                self.expression(e.value)
                self.index(e.slice)
            case ast.Call():
                self.call(e)
            case _:
                raise Refused(f"the expression `{_text(e)}`", e)

    def expressions(self, parts: Iterable[ast.expr]) -> None:
        for part in parts:
            self.expression(part)

    def constant(self, e: ast.Constant) -> None:
        value = e.value
        if isinstance(value, str) and len(value) > LONGEST_TEXT or isinstance(value, int) and abs(value) > WIDEST_INTEGER:
            raise Refused("a constant too large", e)
        if not (value is None or isinstance(value, (bool, int, float, str))):
            raise Refused(f"the constant `{_text(e)}`", e)

    def index(self, e: ast.expr) -> None:
        for part in e.elts if isinstance(e, ast.Tuple) else [e]:
            match part:
                case ast.Slice(lower=None, upper=None, step=None) | ast.Constant(value=None | int()):
                    pass
                case _:
                    raise Refused(f"the index `{_text(e)}`", e)

    def call(self, e: ast.Call) -> None:
        match e.func:
            case ast.Name(id=name) if name in PYTHON and not e.keywords:
                pass
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in MODULES and name in CALLED:
                pass
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="tl"), attr="math"), attr=name) if name in CALLED:
                pass
            case ast.Attribute(attr=name) if name in METHODS:
                self.expression(e.func.value)
            case _:
                raise Refused(f"a call of `{_text(e.func)}`", e)
        combines = isinstance(e.func, ast.Attribute) and e.func.attr in ("associative_scan", "reduce")
        for argument in (*e.args, *(k.value for k in e.keywords)):
            if not (combines and isinstance(argument, ast.Name) and argument.id in self.functions):
                self.expression(argument)
        for keyword in e.keywords:
            if keyword.arg is None or keyword.arg.startswith("_"):
                raise Refused(f"the argument `{_text(keyword)}`", e)


def _text(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0][:80]
