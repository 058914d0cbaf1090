"""Big leaves of which only a few elements are read shrink to those: a RoPE cache of 40960 positions, of which the probe
reads eight. A capture then holds what its regions need, and can be evaluated without weights."""

from __future__ import annotations

import msgspec
import numpy as np

from graphdiff.program.types import Operand, Program, affine_index

MOST = 1 << 16
"""Elements of one leaf that are worth keeping."""


def shrink_leaves(program: Program, bits: dict[int, np.ndarray]) -> None:
    """Replace, in place, every leaf of more than MOST elements of which arithmetic reads at most MOST.

    Leaves that an anchor reads stay (their anchors are pinned). `bits` and `program.data` get the elements kept.
    """
    readers: dict[int, list[tuple[int, int]]] = {}
    for n, node in enumerate(program.nodes):
        for slot, operand in enumerate(node.operands):
            for m in operand.nodes:
                readers.setdefault(m, []).append((n, slot))
    fixed = {m for o in program.outputs for m in o.operand.nodes}
    for leaf, node in enumerate(program.nodes):
        here = readers.get(leaf, [])
        if node.op != "leaf" or node.size <= MOST or leaf not in bits or leaf in fixed or not here:
            continue
        operands = [program.nodes[n].operands[s] for n, s in here]
        if any(program.nodes[n].kind == "anchor" for n, _ in here) or any(o.form == "whole" for o in operands):
            continue
        if sum(int(np.prod(o.shape)) for o in operands) <= 64 * MOST:
            _shrink(program, bits, leaf, here)


def _shrink(program: Program, bits: dict[int, np.ndarray], leaf: int, readers: list[tuple[int, int]]) -> None:
    readers = list(dict.fromkeys(readers))
    read = {key: _index(program, leaf, program.nodes[key[0]].operands[key[1]]) for key in readers}
    kept = np.unique(np.concatenate([index[inside] - start for index, inside, start in read.values()]))
    if kept.size > MOST:
        return
    size = program.nodes[leaf].size
    bits[leaf] = np.ascontiguousarray(bits[leaf].reshape(-1)[kept])
    program.data[leaf] = bits[leaf]
    program.nodes[leaf] = msgspec.structs.replace(program.nodes[leaf], shape=(int(kept.size),))
    for (n, slot), (index, inside, start) in read.items():
        operand = program.nodes[n].operands[slot]
        behind = np.where(index >= start + size, index - size + kept.size, index)
        new = np.where(inside, start + np.searchsorted(kept, np.where(inside, index - start, 0)), behind)
        program.blobs.append(new.reshape(-1).astype(np.int32))
        gather = Operand(operand.nodes, operand.shape, "gather", index=len(program.blobs) - 1)
        node = program.nodes[n]
        program.nodes[n] = msgspec.structs.replace(node, operands=tuple(gather if i == slot else o for i, o in enumerate(node.operands)))


def _index(program: Program, leaf: int, operand: Operand) -> tuple[np.ndarray, np.ndarray, int]:
    """(flat element numbers into the operand's concatenated nodes, which of them are the leaf's, where the leaf starts)."""
    if operand.form == "affine":
        index = affine_index(operand)
    else:
        index = np.asarray(program.blobs[operand.index], np.int64).reshape(operand.shape)
    start = sum(program.nodes[m].size for m in operand.nodes[:operand.nodes.index(leaf)])
    return index, (index >= start) & (index < start + program.nodes[leaf].size), start
