"""Two captures -> two sides, if they can be compared at all."""

from __future__ import annotations

import numpy as np

from graphdiff.compare.leaves import find_rounded_leaves
from graphdiff.compare.side import Side
from graphdiff.errors import GraphdiffError
from graphdiff.probe import ProbeData, probe
from graphdiff.store import Capture


def check_comparable(inference: Capture, training: Capture) -> None:
    """Raises GraphdiffError for captures of different models, probes, or kinds that share nothing."""
    one, two = inference.header, training.header
    functions = [h.kind == "function" for h in (one, two)]
    if any(functions) and not all(functions):
        raise GraphdiffError(f"a capture of a {one.kind} and one of a {two.kind} share no probe",
                             fix="compare a function with a function, a model with a model")
    for name, header, capture in (("inference", one, inference), ("training", two, training)):
        if capture.probe is None:
            raise GraphdiffError(f"the {name} capture was never probed", where=header.model.name, fix="capture it again")
    if all(functions):
        return
    if one.model.fingerprint != two.model.fingerprint:
        raise GraphdiffError("the captures are of different models or weights", where=f"{one.model.name} and {two.model.name}",
                             fix="capture both sides from the same checkpoint (same name, layers and seed for synthetic ones)")
    if (one.probe.tokens, one.probe.positions) != (two.probe.tokens, two.probe.positions):
        raise GraphdiffError("the captures were probed with different tokens",
                             where=f"{len(one.probe.tokens)} and {len(two.probe.tokens)} tokens", fix="capture both sides with the same --tokens")


def sides_of(inference: Capture, training: Capture) -> tuple[Side, Side, dict[int, np.ndarray]]:
    """Both sides, and the wide numbers of training leaves that are roundings of what inference computes.

    Functions keep their inputs, so they are probed again, knowing of each other: leaves that are the rounding of
    something the other side computes are read as that.
    """
    if inference.header.kind != "function":
        return Side(inference.program, inference.probe, inference.program.data), Side(training.program, training.probe, training.program.data), {}
    one, _ = _jointly(inference, training)
    two, wide = _jointly(training, inference)
    return one, two, wide


def _jointly(own: Capture, other: Capture) -> tuple[Side, dict[int, np.ndarray]]:
    bits, other_bits = own.program.data, other.program.data
    found = find_rounded_leaves(own.program, bits, other.program, other_bits)
    data: ProbeData = own.probe
    if found.numbers:
        data = probe(own.program, bits, static_rule=False, pin_anchors=False, substitutes=found.numbers, rounded_leaves=found.rounded)
    side = Side(own.program, data, bits)
    side.substitutes = found.numbers
    return side, {n: found.real[n] for n in found.rounded if n in found.real}
