"""What `call(args)` of an output code takes: shapes, strides and formats, read from its text."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphdiff.errors import GraphdiffError
from graphdiff.lower.inductor.values import TORCH_FLOATS, TORCH_INTS

PLACEHOLDER = re.compile(r'%(\w+) : (?:Tensor|\w+) "(\w+)\[([^\]"]*)\](?:\[([^\]"]*)\])?[^"]*" = PlaceHolder')
HEADER = re.compile(r"^.*def forward\(self, (.*)\):", re.MULTILINE)
PARAMETER = re.compile(r'(\w+) ?: "(\w+)\[([^\]"]*)\](?:\[([^\]"]*)\])?[^"]*"')
FORMATS = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "i64": "int64", "i32": "int32",
           "i16": "int16", "i8": "int8", "u8": "uint8", "b8": "bool"}
FACTORS = frozenset({"extern_kernels.mm", "extern_kernels.bmm", "extern_kernels.addmm", "extern_kernels.bias_addmm"})
MOST_ELEMENTS = 1 << 28
LARGEST_NUMBER = 1 << 40


@dataclass(frozen=True)
class TensorArgument:
    """`fan_in`: over how many of its elements a matrix product sums, 1 if it is no matrix product's second factor."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    fan_in: int = 1


@dataclass(frozen=True)
class Signature:
    """Arguments in order (integers are sizes); the symbolic sizes and what they were taken for."""

    arguments: tuple[TensorArgument | int | None, ...]
    symbols: dict[str, int]


def signature_of(text: str, tokens: int, where: str, post_grad: str = "", *, untold: bool = False) -> Signature:
    """What call() takes, symbolic sizes taken as `tokens`, further ones as one more each.

    post_grad: the readable ATen graph, whose placeholders tell sizes too. Where nothing tells which sizes of a tensor
    are symbolic, all symbols take the values that the code's own example inputs have.
    untold: an argument that the text does not tell is None. Raises GraphdiffError if the text does not tell what an
    argument is (without `untold`), or claims too much.
    """
    tree = ast.parse(text)
    functions = {f.name: f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)}
    names, symbols = _names(functions["call"]), {}
    for node in ast.walk(functions["call"]):  # s72 = arg1_1
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and isinstance(node.targets[0], ast.Name) and node.value.id in names:
            symbols[node.targets[0].id] = node.value.id
    examples = _examples(functions)
    hints = {symbol: size for symbol, argument in symbols.items() if isinstance(size := examples.get(argument), int)}
    sizes = {symbol: tokens + i for i, symbol in enumerate(symbols)}
    kinds = _kinds(names, functions, sizes, text, post_grad, examples, hints)
    if kinds is None:
        sizes = {**sizes, **hints}
        kinds = _kinds(names, functions, sizes, text, post_grad, examples, {}) or {}
    bound = {argument: sizes[symbol] for symbol, argument in symbols.items()}
    factors = _factors(tree)
    arguments: list[TensorArgument | int | None] = []
    for name in names:
        number = bound.get(name, examples.get(name))
        known = not untold or name in kinds
        arguments.append(number if isinstance(number, int) else _tensor(name, kinds, factors, where) if known else None)
    _check_size([a for a in arguments if isinstance(a, TensorArgument)], tree, sizes, where)
    return Signature(tuple(arguments), sizes)


def _names(call: ast.FunctionDef) -> list[str]:
    """`arg0_1, arg1_1 = args`."""
    parameter = call.args.args[-1].arg if call.args.args else ""
    for s in call.body:
        if isinstance(s, ast.Assign) and isinstance(s.value, ast.Name) and s.value.id == parameter and isinstance(s.targets[0], ast.Tuple | ast.List):
            return [ast.unparse(t) for t in s.targets[0].elts]
    return []


def _tensor(name: str, kinds: Mapping[str, tuple], factors: set[str], where: str) -> TensorArgument:
    if name not in kinds:
        raise GraphdiffError(f"the code does not tell what {name} is (no get_args, no placeholder)", where=where,
                             fix="dump with torch's own code comments on, or capture the function itself")
    dtype, shape, strides = kinds[name]
    if dtype not in TORCH_FLOATS | TORCH_INTS:
        raise GraphdiffError(f"the input {name} is {dtype}, of which no stand-in can be made", where=where, fix="choose another graph")
    return TensorArgument(name, shape, strides, dtype, shape[-1] if name in factors and len(shape) > 1 else 1)


def _kinds(names: Sequence[str], functions: Mapping, sizes: Mapping[str, int], text: str, post_grad: str, examples: Mapping, hints: Mapping[str, int],
           ) -> dict[str, tuple] | None:
    """(format, shape, strides) of each tensor; None if one may have a symbolic size and nothing tells.

    An example's sizes are taken as they are if no symbol's hint is among them.
    """
    layouts, told, found = _asserted(functions, sizes), _told(text, post_grad, sizes), {}
    for name in names:
        example = examples.get(name)
        if isinstance(example, int):
            continue
        dtype = (told.get(name) or example or (None,))[0]
        layout = layouts.get(name) or (told[name][1:] if name in told and None not in told[name] else None)
        if layout is None and example is not None and None not in example:
            if any(n == h for n in example[1] for h in hints.values()):
                return None
            layout = example[1:]
        if dtype is not None and layout is not None:
            found[name] = (dtype, *layout)
    return found


def _told(text: str, post_grad: str, sizes: Mapping[str, int]) -> dict[str, tuple]:
    """(format, shape, strides) as the kernels' comments and the ATen graph's placeholders tell; None for what they do not."""
    header = HEADER.search(post_grad)
    found: dict[str, tuple] = {}
    for name, short, shape, strides in [*PARAMETER.findall(header[1] if header else ""), *PLACEHOLDER.findall(text)]:
        if short in FORMATS:
            found.setdefault(name, (FORMATS[short], _numbers(shape, sizes), _numbers(strides, sizes)))
    return found


def _asserted(functions: Mapping[str, ast.FunctionDef], sizes: Mapping[str, int]) -> dict[str, tuple]:
    """assert_size_stride(arg0_1, (s72, 64), (64, 1), ...)"""
    found: dict[str, tuple] = {}
    for function in sorted(functions.values(), key=lambda f: f.name != "call"):
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "assert_size_stride" and len(node.args) >= 3:
                shape, strides = (_integers(a, sizes) for a in node.args[1:3])
                if shape is not None and strides is not None:
                    found.setdefault(ast.unparse(node.args[0]), (shape, strides))
    return found


def _examples(functions: Mapping[str, ast.FunctionDef]) -> dict[str, int | tuple]:
    """By argument: a size's number, or (format, shape, strides), from get_args."""
    found: dict[str, int | tuple] = {}
    for function in (functions.get("benchmark_compiled_module"), functions.get("get_args")):
        for s in function.body if function else ():
            if not isinstance(s, ast.Assign) or not isinstance(s.targets[0], ast.Name):
                continue
            number = _integer(s.value, {})
            if number is not None:
                found[s.targets[0].id] = number
            elif isinstance(s.value, ast.Call) and ast.unparse(s.value.func) == "rand_strided" and len(s.value.args) >= 2:
                dtype = next((ast.unparse(k.value).removeprefix("torch.") for k in s.value.keywords if k.arg == "dtype"), "")
                shape, strides = (_integers(a, {}) for a in s.value.args[:2])
                found[s.targets[0].id] = (dtype, shape, strides)
    return found


def _numbers(text: str, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """`s72, 4, 64`"""
    try:
        return _integers(ast.parse(f"({text},)" if text.strip() else "()", mode="eval").body, sizes)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _factors(tree: ast.Module) -> set[str]:
    """Arguments that a matrix product takes as its second factor."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in FACTORS and node.args:
            inner = node.args[-1]
            inner = inner.args[0] if isinstance(inner, ast.Call) and inner.args else inner
            found.add(ast.unparse(inner))
    return found


def _check_size(tensors: list[TensorArgument], tree: ast.Module, sizes: Mapping[str, int], where: str) -> None:
    """A file of a kilobyte can claim any size: nothing is made before it was counted."""
    total = sum(math.prod(t.shape) for t in tensors)
    for t in tensors:
        total = max(total, 1 + sum((n - 1) * s for n, s in zip(t.shape, t.strides)) if all(t.shape) else 0)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("empty_strided") and len(node.args) >= 2:
            shape, strides = (_integers(a, sizes) for a in node.args[:2])
            total += 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if shape and strides and all(shape) else 0
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) > LARGEST_NUMBER << 24:
            total = MOST_ELEMENTS + 1
    if total > MOST_ELEMENTS or any(n < 0 for t in tensors for n in (*t.shape, *t.strides)):
        raise GraphdiffError(f"this graph works on {total} elements, more than can be evaluated ({MOST_ELEMENTS})", where=where,
                             fix="choose a smaller graph with --graph, or fewer --tokens")


def _integers(e: ast.expr, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    if not isinstance(e, ast.Tuple | ast.List):
        return None
    found = tuple(_integer(x, sizes) for x in e.elts)
    return None if None in found else found


def _integer(e: ast.expr, sizes: Mapping[str, int]) -> int | None:
    """Arithmetic on sizes; None for anything else, and for numbers no tensor has."""
    made: int | None = None
    match e:
        case ast.Constant() if type(e.value) is int:
            made = e.value
        case ast.Name():
            made = sizes.get(e.id)
        case ast.UnaryOp(op=ast.USub()):
            inner = _integer(e.operand, sizes)
            made = None if inner is None else -inner
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv() | ast.Mod()):
            left, right = _integer(e.left, sizes), _integer(e.right, sizes)
            if left is not None and right is not None:
                made = _arithmetic(e.op, left, right)
        case ast.Call() if ast.unparse(e.func) in ("max", "min") and e.args:
            parts = [_integer(a, sizes) for a in e.args]
            made = None if None in parts else {"max": max, "min": min}[ast.unparse(e.func)](parts)
    return made if made is not None and abs(made) <= LARGEST_NUMBER else None


def _arithmetic(op: ast.operator, left: int, right: int) -> int | None:
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
    if right == 0:
        return None
    return left // right if isinstance(op, ast.FloorDiv) else left % right
