"""Both directions of the schedule diff, and what they are made of."""

from __future__ import annotations

from dataclasses import dataclass

from graphdiff.compare.moved import Pairing, Verdicts, schedule_diff
from graphdiff.compare.opaque import hidden_nodes
from graphdiff.compare.overlap import Overlap
from graphdiff.compare.side import Side
from graphdiff.compare.values import MovedValue, group_values


@dataclass
class Direction:
    """What one side rounds and the other does not."""

    pairing: Pairing
    verdicts: Verdicts
    values: list[MovedValue]
    hidden: dict[int, int]

    @property
    def side(self) -> Side:
        return self.pairing.own


@dataclass
class Diff:
    """The two directions; `inference.values` are rounded in inference only."""

    inference: Direction
    training: Direction

    @property
    def empty(self) -> bool:
        return not (self.inference.values or self.training.values or self.training.verdicts.mode or self.inference.verdicts.mode)


def diff_sides(inference: Side, training: Side) -> Diff:
    """Pair the values of both sides and compare their schedules."""
    across = Overlap(inference, training)
    there = Pairing(inference, training, across, False, Overlap(inference, inference))
    back = Pairing(training, inference, across, True, Overlap(training, training))
    hidden = hidden_nodes(there, back), hidden_nodes(back, there)
    _look_behind(there, back, hidden[0])
    _look_behind(back, there, hidden[1])
    return Diff(_direction(there, hidden[0]), _direction(back, hidden[1]))


def _look_behind(pairing: Pairing, reverse: Pairing, hidden: dict[int, int]) -> None:
    """What enters a hidden piece is read there by the hiding node, here by the piece's own consumers."""
    for node, hiding in hidden.items():
        pairing.behind.setdefault(node, []).append(hiding)
        reverse.behind.setdefault(hiding, []).append(node)


def _direction(pairing: Pairing, hidden: dict[int, int]) -> Direction:
    own = pairing.own

    def is_opaque(row: int) -> bool:
        return own.consumer[row] in hidden

    verdicts = schedule_diff(pairing, is_opaque)
    return Direction(pairing, verdicts, group_values(pairing, verdicts.moved), hidden)


def anything_matched(diff: Diff) -> bool:
    """False if no value, and no output, of one side is formed on the other: two different computations."""
    for direction in (diff.inference, diff.training):
        side = direction.side
        formed = [side.value(c) for c in side.rows_of]
        if any(s >= 0 and direction.pairing.partners(s) for s in formed):
            return True
        if all(s < 0 for s in formed):
            return True  # nothing to tell by: constants, or all zeros
    return False
