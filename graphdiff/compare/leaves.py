"""Leaves of one side that are the rounding of something the other side computes.

A cos/sin table kept in BF16, 1 + w folded at load time, a scale stored as a BF16 scalar: such a leaf *is* the other
side's value, rounded. Its skeleton numbers become the other side's, and the leaf counts as rounded. Only for captures
that keep their inputs (functions): model captures meet through the static rule of probe/dequantise.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from graphdiff.probe.dequantise import Skeleton
from graphdiff.program import Evaluation, Program
from graphdiff.program.dtypes import LOW, decode, round_to


@dataclass
class Substitution:
    """By leaf node: its skeleton numbers, the float32 numbers before the rounding, the format it was rounded to."""

    numbers: dict[int, np.ndarray] = field(default_factory=dict)
    real: dict[int, np.ndarray] = field(default_factory=dict)
    rounded: dict[int, str] = field(default_factory=dict)


def find_rounded_leaves(own: Program, own_bits: dict[int, np.ndarray], other: Program, other_bits: dict[int, np.ndarray]) -> Substitution:
    """Leaves of `own` to read as values of `other`."""
    result = Substitution()
    _arrays(own, own_bits, other, other_bits, result)
    _scalars(own, own_bits, other, other_bits, result)
    return result


def _read_leaves(program: Program) -> set[int]:
    used = {m for node in program.nodes for o in node.operands for m in o.nodes} | {m for o in program.outputs for m in o.operand.nodes}
    return {n for n in used if program.nodes[n].kind == "leaf"}


def _arrays(own: Program, own_bits, other: Program, other_bits, result: Substitution) -> None:
    names_there = {other.nodes[n].attrs.get("name") for n in _read_leaves(other)}
    wanted = [n for n in _read_leaves(own) if own.nodes[n].op == "leaf" and own.nodes[n].dtype in LOW and own.nodes[n].size > 1
              and own.nodes[n].attrs.get("name") not in names_there]
    if not wanted:
        return
    real = Evaluation(other, other_bits)
    skeleton = Skeleton(other, other_bits, static_rule=False)
    leaves = _read_leaves(other)
    sizes = {own.nodes[n].size for n in wanted}
    formed = [(m, None) for m, node in enumerate(other.nodes)
              if node.size in sizes and (m in leaves and node.dtype == "float32" or node.kind in ("arith", "exact"))]
    read = [(m, o) for m, node in enumerate(other.nodes) for o in node.operands if o.form != "whole" and int(np.prod(o.shape)) in sizes]
    for n in wanted:
        dtype = own.nodes[n].dtype
        stored = decode(own_bits[n], dtype).reshape(-1)
        for m, operand in formed + read:
            numbers = real.flat(m) if operand is None else real.read(operand).reshape(-1)
            if numbers.size == stored.size and np.array_equal(round_to(numbers, dtype), stored) and not np.array_equal(numbers, stored):
                exact = skeleton.flat(m) if operand is None else skeleton.read(operand).reshape(-1)
                result.numbers[n], result.rounded[n] = np.array(exact), dtype
                result.real[n] = np.array(numbers, np.float32)
                break


def _scalar_values(program: Program, bits: dict[int, np.ndarray]) -> dict[int, float]:
    """Constants and one-element leaves that something reads."""
    found = {}
    for n in _read_leaves(program):
        node = program.nodes[n]
        if node.op == "const":
            found[n] = float(node.attrs["value"])
        elif node.size == 1 and n in bits:
            found[n] = float(decode(bits[n], node.dtype).reshape(-1)[0])
    return found


def _scalars(own: Program, own_bits, other: Program, other_bits, result: Substitution) -> None:
    mine, theirs = _scalar_values(own, own_bits), _scalar_values(other, other_bits)
    only_theirs = sorted(set(map(abs, theirs.values())) - set(map(abs, mine.values())))
    for n, value in mine.items():
        if not np.isfinite(value) or value == 0 or abs(value) in set(map(abs, theirs.values())):
            continue
        dtype = own.nodes[n].dtype
        # A float32 scalar beside the Python number it was made from: the same constant, no low rounding.
        wide = [v for v in only_theirs if v != abs(value) and float(np.float32(v)) == abs(value)]
        if len(wide) == 1:
            result.numbers[n] = np.array([np.copysign(wide[0], value)])
            continue
        for low in [dtype] if dtype in LOW else ("bfloat16", "float16"):
            match = [v for v in only_theirs if np.isfinite(v) and v != abs(value)
                     and float(round_to(np.array([v]), low)[0]) == abs(value)]
            if len(match) == 1:
                result.numbers[n], result.rounded[n] = np.array([np.copysign(match[0], value)]), low
                result.real[n] = result.numbers[n].astype(np.float32)
                break
