"""Which elements reach an output: dead lanes of a kernel (the other branch of a cat, padding) are no values."""

from __future__ import annotations

import numpy as np

from graphdiff.program import Operand, Program
from graphdiff.program.types import Node

ELEMENTWISE_FREE = ("mm", "attention", "opaque", "cumsum", "cumprod")


def operand_live(node: Node, operand: Operand, live: np.ndarray | None) -> np.ndarray | None:
    """Bool mask over the operand's shape of what the node's live elements read; None means all."""
    if live is None or node.op in ELEMENTWISE_FREE:
        return None
    if "axes" in node.attrs:
        full = live
        for axis in sorted(a % len(operand.shape) for a in node.attrs["axes"]):
            full = np.expand_dims(full, axis)
        return np.broadcast_to(full, operand.shape)
    extra = live.ndim - len(operand.shape)
    reduced = live.any(axis=tuple(range(extra))) if extra else live
    for axis, n in enumerate(operand.shape):
        if n == 1 and reduced.shape[axis] != 1:
            reduced = reduced.any(axis=axis, keepdims=True)
    return reduced


def live_elements(program: Program) -> list[np.ndarray | None]:
    """Per node: None (all live), or a bool mask of its shape; all-False for dead nodes. Static nodes count as live."""
    masks: dict[int, np.ndarray] = {n: np.zeros(node.size, bool) for n, node in enumerate(program.nodes) if node.dynamic}

    def mark(operand: Operand, mask: np.ndarray | None) -> None:
        if not any(n in masks for n in operand.nodes):
            return
        if operand.form == "whole" and mask is None:
            masks[operand.nodes[0]][:] = True
            return
        marks = {n: masks[n] if n in masks else np.zeros(program.nodes[n].size, bool) for n in operand.nodes}
        program.read_mask(operand, np.ones(operand.shape, bool) if mask is None else np.asarray(mask), marks)

    for output in program.outputs:
        mark(output.operand, None)
    result: list[np.ndarray | None] = [None] * len(program.nodes)
    for n in range(len(program.nodes) - 1, -1, -1):
        node = program.nodes[n]
        if n not in masks:
            continue
        mask = masks.pop(n)
        live = None if mask.all() else mask.reshape(node.shape)
        result[n] = live
        if live is not None and not live.any():
            continue
        for operand in node.operands:
            mark(operand, operand_live(node, operand, live))
    return result
