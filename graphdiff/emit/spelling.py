"""How values are named and spelled in generated code: in Triton as Inductor spells them, and in plain torch.

Inductor's spellings (torch/_inductor/codegen/triton.py, 2.13): libdevice.exp and rsqrt, `/` for division, tl.sqrt_rn,
constants as tl.full. Another spelling of the same function gives other FP32 bits on the GPU.
"""

from __future__ import annotations

from graphdiff.emit.ir import Lanes, Part

INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
TRITON = {
    "exp": "libdevice.exp({0})", "exp2": "libdevice.exp2({0})", "expm1": "libdevice.expm1({0})", "log": "tl_math.log({0})",
    "log2": "libdevice.log2({0})", "log1p": "libdevice.log1p({0})", "sqrt": "tl.sqrt_rn({0})", "rsqrt": "libdevice.rsqrt({0})",
    "sin": "tl_math.sin({0})", "cos": "tl_math.cos({0})", "tanh": "libdevice.tanh({0})", "erf": "libdevice.erf({0})",
    "sigmoid": "tl.sigmoid({0})", "neg": "-{0}", "abs": "tl_math.abs({0})", "reciprocal": "1.0 / {0}",
    "maximum": "maximum({0}, {1})", "minimum": "minimum({0}, {1})",
    "pow": "libdevice.pow({0}, {1})", "ge": "({0} >= {1}).to(tl.float32)", "floor": "libdevice.floor({0})",
}
TORCH = {
    **{op: f"torch.{op}({{0}})" for op in (
        "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid", "abs",
        "reciprocal", "floor")},
    "neg": "-{0}", "maximum": "torch.maximum({0}, {1})", "minimum": "torch.minimum({0}, {1})", "pow": "torch.pow({0}, {1})",
    "ge": "({0} >= {1}).float()",
}


class CannotSpell(Exception):
    """An op that no kernel can be written for."""


def names_of(part: Part) -> dict[int, str]:
    """A Python name for every value that is needed; the same for equal parts."""
    names: dict[int, str] = {}
    taken = {n for i in part.inputs for n in (i.name, f"{i.name}_at")} | {o.name for o in part.outputs} | {
        "tile", "rows", "heads", "steps", "row", "token", "head", "batch", "step", "lane", "ok", "tl", "torch"}
    for v in part.needed():
        wanted = _wanted(part, v, names)
        name, count = wanted, 2
        while name in taken:
            name, count = f"{wanted}_{count}", count + 1
        taken.add(name)
        names[v] = name
    return names


def _wanted(part: Part, v: int, names: dict[int, str]) -> str:
    value = part.values[v]
    args = [part.values[a] for a in value.args]
    if value.op == "load":
        name, lanes = part.lanes_of_load(v)
        return name + _suffix(lanes, part.input(name).width) if part.input(name).role != "row" or lanes.count != part.input(name).width else f"{name}_row"
    if value.op == "sum":
        return "total"
    if value.op == "div" and args[0].op == "sum" and args[1].op == "const":
        return "mean"
    if value.op == "rsqrt":
        return "rstd"
    if value.op == "mul" and "rsqrt" in (args[0].op, args[1].op) and value.lanes > 1:
        other = value.args[0] if args[1].op == "rsqrt" else value.args[1]
        return names[other].removesuffix("_row").replace("addends", "h") + "_hat"
    if value.op == "add" and value.lanes > 1 and all(a.op == "load" or names[i].startswith("h") for i, a in zip(value.args, args)):
        return "h"
    if value.op == "exp":
        return "e"
    return f"t{len([n for n in names.values() if n.startswith('t') and n[1:].isdigit()])}"


def _suffix(lanes: Lanes, width: int) -> str:
    if lanes.step == 2 and lanes.count * 2 <= width + 1:
        return ("_even", "_odd")[lanes.start % 2] if lanes.start < 2 else f"_from{lanes.start}by2"
    if lanes.step != 1:
        return f"_from{lanes.start}by{lanes.step}"
    if lanes.count == width:
        return "_row"
    if lanes.count * 2 == width:
        return {0: "_lo", lanes.count: "_hi"}.get(lanes.start, f"_from{lanes.start}")
    return f"_from{lanes.start}"


def triton_expression(part: Part, v: int, names: dict[int, str]) -> str:
    value = part.values[v]
    args = [_constant(part, a) or names[a] for a in value.args]
    return _expression(value.op, args, TRITON)


def _constant(part: Part, v: int) -> str:
    value = part.values[v]
    return f"tl.full([1, 1], {_number(value.attr[0])}, tl.float32)" if value.op == "const" else ""


def torch_expression(part: Part, v: int, names: dict[int, str]) -> str:
    value = part.values[v]
    if value.op == "sum":
        return f"{names[value.args[0]]}.sum(-1, keepdim=True)"
    if value.op == "round":
        return f"{names[value.args[0]]}.to(torch.{value.attr[0]}).float()"
    args = [_number(part.values[a].attr[0]) if part.values[a].op == "const" else names[a] for a in value.args]
    if value.op in ("maximum", "minimum"):
        args = [f"torch.tensor({a})" if part.values[i].op == "const" else a for a, i in zip(args, value.args)]
    return _expression(value.op, args, TORCH)


def _number(x: float) -> str:
    if x in (float("inf"), float("-inf")):
        return f"float('{x}')"
    return repr(x)


def _expression(op: str, args: list[str], table: dict[str, str]) -> str:
    if op in INFIX:
        return f"{args[0]} {INFIX[op]} {args[1]}"
    if op not in table:
        raise CannotSpell(f"{op} has no spelling in a kernel")
    return table[op].format(*args)
