"""A part in plain torch: FP32 between, `.to(bfloat16)` where the engine rounds. The CPU path, and a reference.

It differs from the kernel in FP32 bits only: sums are torch's, exp and rsqrt the CPU's.
"""

from __future__ import annotations

from typing import Any

from graphdiff.emit.ir import Lanes, Part
from graphdiff.emit.spelling import names_of, torch_expression


def function_text(part: Part, name: str, comments: dict[int, str] | None = None) -> str:
    """`def name(inputs in order) -> outputs` on [batch, steps, (heads,) width] tensors."""
    from graphdiff.emit.triton_source import wrap

    comments, names = comments or {}, names_of(part)
    arguments = [i.name for i in part.inputs] + ([f"dtype_{o.name}" for o in part.outputs if not o.dtype])
    lines = [f"def {name}({', '.join(arguments)}):"]
    for v in part.needed():
        value = part.values[v]
        if value.op == "const":
            continue
        if v in comments:
            lines += [f"    # {line}" for line in comments[v].splitlines()]
        lines.append(f"    {names[v]} = {_load(part, v) if value.op == 'load' else torch_expression(part, v, names)}")
    results = []
    for o in part.outputs:
        dtype = f"torch.{o.dtype}" if o.dtype else f"dtype_{o.name}"
        lines += _joined(o.name, [(p.lanes, f"{names[p.value]}.to({dtype})") for p in o.pieces], o.width)
        results.append(o.name)
    for o in part.vectors:
        lines += _joined(o.name, [(p.lanes, f"{names[p.value]}.reshape(-1, {p.lanes.count}).sum(0)") for p in o.pieces], o.width)
        results.append(o.name)
    lines.append(f"    return {', '.join(results)}")
    return wrap("\n".join(lines)) + "\n"


def _load(part: Part, v: int) -> str:
    name, lanes = part.lanes_of_load(v)
    i = part.input(name)
    whole = lanes == Lanes(0, 1, i.width)
    end = lanes.start + lanes.step * lanes.count
    cut = "" if whole else f"[..., {lanes.start}:{end}{f':{lanes.step}' if lanes.step != 1 else ''}]"
    heads = ".unsqueeze(-2)" if i.role == "table" and part.per_head else ""
    return f"{name}{cut}.float(){heads}"


def _joined(name: str, pieces: list[tuple[Lanes, str]], width: int) -> list[str]:
    if len(pieces) == 1 and pieces[0][0] == Lanes(0, 1, width):
        return [f"    {name} = {pieces[0][1]}"]
    ordered = sorted(pieces)
    if all(l.step == 1 for l, _ in ordered):
        return [f"    {name} = torch.cat([{', '.join(t for _, t in ordered)}], -1)"]
    if len(ordered) == 2 and all(l.step == 2 for l, _ in ordered) and ordered[0][0].count * 2 == width:
        return [f"    {name} = torch.stack([{', '.join(t for _, t in ordered)}], -1).flatten(-2)"]
    lines = []
    for n, (_, text) in enumerate(ordered):
        lines.append(f"    {name}_{n} = {text}")
    lines.append(f"    {name} = {name}_0.new_zeros(*{name}_0.shape[:-1], {width})")
    lines += [f"    {name}[..., {l.start}:{l.start + l.step * l.count}:{l.step}] = {name}_{n}" for n, (l, _) in enumerate(ordered)]
    return lines


_FUNCTIONS: dict[str, Any] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
    "neg": lambda a: -a, "ge": lambda a, b: (a >= b).to(a.dtype), "sum": lambda a: a.sum(-1, keepdim=True),
}


def values_of(part: Part, tensors: dict[str, Any], precision: Any, roots: list[int] | None = None, rounding: bool = True) -> dict[int, Any]:
    """Every value that `roots` (default: all that leaves) need, computed on torch tensors one by one."""
    import torch

    values: dict[int, Any] = {}
    for v in part.needed(roots):
        value = part.values[v]
        if value.op == "const":
            values[v] = torch.tensor(value.attr[0], dtype=precision)
        elif value.op == "load":
            name, lanes = part.lanes_of_load(v)
            x = tensors[name][..., lanes.start:lanes.start + lanes.step * lanes.count:lanes.step].to(precision)
            values[v] = x.unsqueeze(-2) if part.input(name).role == "table" and part.per_head else x
        elif value.op == "round":
            values[v] = _rounded(values[value.args[0]], value.attr[0]) if rounding else values[value.args[0]]
        else:
            function = _FUNCTIONS.get(value.op) or getattr(torch, value.op)
            values[v] = function(*[values[a] for a in value.args])
    return values


def evaluate(part: Part, tensors: dict[str, Any], precision: Any = None, rounding: bool = True) -> dict[str, Any]:
    """What leaves the part, on torch tensors: in float64 without rounding, the reference for gradients.

    Roundings are transparent to autograd (derivative 1)."""
    import torch

    precision = precision or torch.float32
    values = values_of(part, tensors, precision, rounding=rounding)
    found = {}
    for o in part.outputs:
        shape = values[o.pieces[0].value].shape[:-1]
        out = torch.zeros(*shape, o.width, dtype=precision)
        for p in o.pieces:
            out[..., list(p.lanes.index())] = values[p.value].expand(*shape, p.lanes.count)
        found[o.name] = _rounded(out, o.dtype) if rounding and o.dtype else out
    for o in part.vectors:
        out = torch.zeros(o.width, dtype=precision)
        for p in o.pieces:
            out[list(p.lanes.index())] = values[p.value].reshape(-1, p.lanes.count).sum(0)
        found[o.name] = out
    return found


def _rounded(x: Any, dtype: str) -> Any:
    import torch

    return x + (x.detach().to(getattr(torch, dtype)).to(x.dtype) - x.detach())
