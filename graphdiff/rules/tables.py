"""Cosines or sines? A table of either looks the same in the graph; what tells them apart, most certain first."""

from __future__ import annotations

import re

from graphdiff.program.types import Operand
from graphdiff.rules.graph import ValueGraph


def wave(g: ValueGraph, operand: Operand | None, bases: tuple[int, ...], reader: int) -> str:
    """`cos` or `sin` for an operand of a product that is such a table, else an empty string."""
    found = {_by_making(g, b) for b in bases}
    if not found or "" in found:
        return ""
    if len(found) == 1 and found != {"table"}:
        return found.pop()
    if operand is not None and (half := _half(g, operand)):
        return half
    if reader < 0:
        return ""
    words = set(re.findall(r"cos|sin", g.program.site(reader).text.lower()))
    if len(words) == 1:
        return words.pop()
    return _by_use(g, reader, bases) or _by_other_uses(g, bases) or _by_neighbour(g, reader)


def _by_making(g: ValueGraph, b: int) -> str:
    """`cos`, `sin`, `table` (may be either), or nothing."""
    node = g.program.nodes[b]
    if node.op in ("cos", "sin"):
        return node.op
    if node.size == 1 or node.op == "const":
        return ""
    if node.kind == "leaf":
        words = set(re.findall(r"cos|sin", str(node.attrs.get("name", "")).lower()))
        return words.pop() if len(words) == 1 else "table"
    if node.op in ("mul", "div"):  # scaled, as YaRN does
        inner = [_by_making(g, c) for _, bases in g.reads(b) for c in bases
                 if g.program.nodes[c].op in ("cos", "sin", "leaf")]
        return next((k for k in inner if k in ("cos", "sin")), "" if node.dynamic else "table")
    return "" if node.dynamic else "table"


def _half(g: ValueGraph, o: Operand) -> str:
    """One table of both, cosines in the left half of its rows (vLLM's cos_sin_cache)."""
    while len(o.nodes) == 1 and o.form == "whole" and g.side.is_exact(o.nodes[0]) and g.program.nodes[o.nodes[0]].operands:
        o = g.program.nodes[o.nodes[0]].operands[0]  # through the cast
    held = [m for m in o.nodes if g.program.nodes[m].op != "const"]
    if len(held) != 1 or o.form == "whole":
        return ""
    shape = g.program.nodes[held[0]].shape
    if len(shape) < 2 or shape[-1] % 2:
        return ""
    row = shape[-1]
    if o.form == "gather":
        columns = g.picked(o, held[0]) % row
        low, high = int(columns.min()), int(columns.max())
    else:
        low = o.offset % row
        high = low + sum((n - 1) * s for n, s in zip(o.shape, o.strides) if s < row)
    return "cos" if high < row // 2 else "sin" if low >= row // 2 else ""


def _by_use(g: ValueGraph, product: int, bases: tuple[int, ...]) -> str:
    """x * cos - y * sin; rotate_half(x) * sin, which negates half of x."""
    others = [o for o, read in g.reads(product) if read != bases]
    if any(g.passes(o, "neg") for o in others):
        return "sin"
    for c in g.read_by(product):
        node = g.program.nodes[c]
        if node.op == "sub":
            sides = [read for _, read in g.reads(c)]
            if all(any(g.program.nodes[b].op == "mul" for b in s) for s in sides) and sides[0] != sides[1]:
                return "cos" if product in sides[0] else "sin"
    return ""


def _by_other_uses(g: ValueGraph, bases: tuple[int, ...]) -> str:
    """The other half of the rotation, or the other product beside this one, says it."""
    found = set()
    for b in bases:
        for product in g.read_by(b)[:8]:
            if g.program.nodes[product].op == "mul":
                found.add(_by_use(g, product, bases))
    found.discard("")
    return found.pop() if len(found) == 1 else ""


def _by_neighbour(g: ValueGraph, product: int) -> str:
    """What is added to this product is the one with sines, or the other way round."""
    for c in g.read_by(product):
        if g.program.nodes[c].op != "add":
            continue
        for _, read in g.reads(c):
            for b in read:
                if b != product and g.program.nodes[b].op == "mul":
                    if any(g.passes(q, "neg") for q in g.program.nodes[b].operands):
                        return "cos"
    return ""
