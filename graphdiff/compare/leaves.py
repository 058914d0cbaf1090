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


LIBRARY_NOISE = 5e-7
"""Relative: about four float32 ulp."""


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


@dataclass(frozen=True)
class Formed:
    """A value of the other side in some layout: its float32 numbers under the schedule, its skeleton numbers."""

    real: np.ndarray
    exact: np.ndarray

    def flat(self) -> Formed:
        return Formed(self.real.reshape(-1), self.exact.reshape(-1))


def _arrays(own: Program, own_bits, other: Program, other_bits, result: Substitution) -> None:
    there = {other.nodes[n].attrs.get("name") for n in _read_leaves(other)}
    wanted = [n for n in sorted(_read_leaves(own)) if own.nodes[n].op == "leaf" and own.nodes[n].size > 1
              and own.nodes[n].dtype in (*LOW, "float32") and own.nodes[n].attrs.get("name") not in there]
    if not wanted:
        return
    formed = _formed(other, other_bits)
    for n in wanted:
        dtype = own.nodes[n].dtype
        stored = decode(own_bits[n], dtype).reshape(-1)
        numbers, real = np.full(stored.size, np.nan), np.full(stored.size, np.nan, np.float32)
        if all(_fill(stored, part, dtype, formed, numbers, real) for part in _parts(own, n, stored.size)):
            unread = np.isnan(numbers)
            numbers[unread], real[unread] = stored[unread], stored[unread]
            result.numbers[n] = numbers
            if dtype in LOW:
                result.rounded[n], result.real[n] = dtype, real


def _parts(own: Program, leaf: int, size: int) -> list[np.ndarray]:
    """Element numbers of a leaf that its readers take (a merged cos/sin cache is read in two parts)."""
    numbers = np.arange(size)
    parts = {}
    for operand in [o for node in own.nodes for o in node.operands] + [o.operand for o in own.outputs]:
        if operand.nodes == (leaf,):
            index = own.take(operand, lambda _: numbers).reshape(-1)
            parts.setdefault(np.unique(index).tobytes(), index)
    return list(parts.values())


def _formed(other: Program, bits) -> list[Formed]:
    """What the other side computes, and how it lays it out for its readers; float32 leaves count, constants do not."""
    real, exact = Evaluation(other, bits), Skeleton(other, bits, static_rule=False)
    leaves = _read_leaves(other)
    found = [Formed(real.node(m), exact.node(m)) for m, node in enumerate(other.nodes)
             if node.kind in ("arith", "exact") or m in leaves and node.op == "leaf" and node.dtype == "float32"]
    found += [Formed(real.read(o), exact.read(o)) for node in other.nodes for o in node.operands if o.form != "whole"]
    return found


def _fill(stored: np.ndarray, part: np.ndarray, dtype: str, formed: list[Formed], numbers: np.ndarray, real: np.ndarray) -> bool:
    """Find what the elements `part` of a leaf are, and fill their numbers in: as they are read, or in the leaf's order
    (how often an element is read says nothing)."""
    return any(_fill_in_order(stored, order, dtype, formed, numbers, real) for order in (part, np.unique(part)))


def _fill_in_order(stored: np.ndarray, part: np.ndarray, dtype: str, formed: list[Formed], numbers: np.ndarray, real: np.ndarray) -> bool:
    wanted = stored[part]
    for value in formed:
        for piece in _pieces(value, part.size):
            if _is_rounding(piece.real, wanted, dtype):
                numbers[part], real[part] = piece.exact, piece.real
                return True
    return dtype == "float32" and _fill_by_number(wanted, part, formed, numbers, real)


def _is_rounding(real: np.ndarray, stored: np.ndarray, dtype: str) -> bool:
    """stored is real rounded to dtype, up to a few float32 ulp in which libraries' cos and exp differ."""
    near = np.abs(real - stored) <= LIBRARY_NOISE * np.abs(stored)
    if dtype not in LOW:
        return bool((near | (real == stored)).all())
    equal = round_to(real, dtype) == stored
    if np.array_equal(real, stored) or not equal.mean() > 0.99:
        return False
    below, above = (round_to(real * np.float32(1 + d), dtype) for d in (-LIBRARY_NOISE, LIBRARY_NOISE))
    return bool((equal | (below == stored) | (above == stored)).all())


def _pieces(value: Formed, size: int) -> list[Formed]:
    """A value whole, or half of it (a table repeated for both halves of a rotation: halves or interleaved)."""
    if value.real.size == size:
        return [value.flat()]
    if value.real.size != 2 * size or value.real.shape[-1] % 2:
        return []
    half = value.real.shape[-1] // 2
    return [Formed(value.real[..., cut], value.exact[..., cut]).flat() for cut in (slice(half), slice(half, None), slice(0, None, 2))]


def _fill_by_number(wanted: np.ndarray, part: np.ndarray, formed: list[Formed], numbers: np.ndarray, real: np.ndarray) -> bool:
    """float32 numbers hardly collide: a value that holds every one of them is the one, whatever its layout."""
    for value in formed:
        have, first = np.unique(value.real.reshape(-1), return_index=True)
        spots = np.clip(np.searchsorted(have, wanted), 0, have.size - 1)
        left = np.clip(spots - 1, 0, None)
        spots = np.where(np.abs(have[left] - wanted) < np.abs(have[spots] - wanted), left, spots)
        if have.size > 1 and (np.abs(have[spots] - wanted) <= LIBRARY_NOISE * np.abs(wanted)).all():
            numbers[part], real[part] = value.exact.reshape(-1)[first[spots]], wanted
            return True
    return False


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
