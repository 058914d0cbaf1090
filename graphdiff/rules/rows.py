"""Weights by row: one number of `w` for each row of `y`, in any layout (a kernel may flatten rows and columns into one axis).

Told by elements and not by shapes: neighbours in y's memory have one weight.
"""

from __future__ import annotations

import numpy as np

from graphdiff.program.types import Operand
from graphdiff.rules.graph import ValueGraph

LARGEST = 1 << 22
"""Elements of a product that are looked at."""
MOSTLY = 0.5
"""More than this share of neighbours has one weight: all but the ends of rows."""
FAR = 200
"""Values looked at upstream of a weight."""


def is_row_weight(graph: ValueGraph, operand: Operand | None, bases: tuple[int, ...], reader: int) -> bool:
    """True if what a product reads by `operand` is constant along the rows of its other operand, and not made from it."""
    nodes = graph.program.nodes
    if operand is None or reader < 0 or nodes[reader].op != "mul" or nodes[reader].size > LARGEST or len(nodes[reader].operands) != 2:
        return False
    if any(nodes[b].size < 2 for b in bases):
        return False
    y, w = nodes[reader].operands
    if operand is y:
        y, w = w, y
    elements, weights = (np.broadcast_to(elements_of(graph, o), nodes[reader].shape).reshape(-1) for o in (y, w))
    order = np.argsort(elements, kind="stable")
    neighbours = np.diff(elements[order]) == 1
    if not neighbours.any() or (np.diff(weights[order]) == 0)[neighbours].mean() <= MOSTLY:
        return False
    return not _depends(graph, bases, set(graph.operand_bases(y)))


def adds_whole_rows(graph: ValueGraph, operand: Operand | None, base: int, reader: int) -> bool:
    """True if a sum over a product adds rows, and no two numbers of one row."""
    nodes = graph.program.nodes
    if operand is None or reader < 0 or nodes[base].op != "mul" or nodes[base].size > LARGEST:
        return False
    read = [np.broadcast_to(elements_of(graph, o), nodes[base].shape).reshape(-1) for o in nodes[base].operands]
    y = max(read, key=lambda ids: np.unique(ids).size)
    mine = elements_of(graph, operand)
    taken = np.where(mine >= 0, y[np.clip(mine, 0, y.size - 1)], -1)
    return not any((np.abs(np.diff(taken, axis=axis)) == 1).any() for axis in nodes[reader].attrs.get("axes", ()))


def elements_of(graph: ValueGraph, operand: Operand) -> np.ndarray:
    """Which element of its bases each element of an operand is (numbered through, with a gap between bases); -1 for others."""
    starts, start = {}, 0
    for b in graph.operand_bases(operand):
        starts[b] = start
        start += graph.program.nodes[b].size + 1

    def flat(n: int) -> np.ndarray:
        node = graph.program.nodes[n]
        if n in starts:
            return np.arange(node.size) + starts[n]
        inner = next((o for o in node.operands if starts.keys() & set(graph.operand_bases(o))), None) if graph.side.is_exact(n) else None
        if inner is None or "axes" in node.attrs:
            return np.full(node.size, -1)
        return np.broadcast_to(graph.program.take(inner, flat), node.shape).reshape(-1)

    return graph.program.take(operand, flat)


def _depends(graph: ValueGraph, bases: tuple[int, ...], on: set[int]) -> bool:
    """True if some of `bases` are made from some of `on` (a norm's factor from what it multiplies)."""
    todo, seen = list(bases), set(bases)
    while todo and len(seen) < FAR:
        n = todo.pop()
        if n in on:
            return True
        new = {b for _, read in graph.reads(n) for b in read} - seen
        seen |= new
        todo += new
    return False
