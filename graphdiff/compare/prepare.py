"""Two captures -> two sides, if they can be compared at all."""

from __future__ import annotations

import math

import numpy as np

from graphdiff.compare.differences import model_difference
from graphdiff.compare.leaves import find_rounded_leaves
from graphdiff.compare.side import Side
from graphdiff.errors import GraphdiffError
from graphdiff.probe import ProbeData, probe
from graphdiff.store import Capture


MOST_ELEMENTS = 1 << 29
"""Elements that evaluating one side may compute and read, all its ops together. 36 layers of an 8B model on 8 tokens
have a third of it; a file of a kilobyte can claim any number."""


WITH_INPUTS = frozenset({"function", "dumps"})
"""Kinds of captures that hold the numbers of all their inputs."""

NOUNS = {"function": "a function", "dumps": "a dumped graph", "vllm": "a vLLM model", "transformers": "a transformers model"}


def check_comparable(inference: Capture, training: Capture) -> None:
    """Raises GraphdiffError for captures of different models, probes, or kinds that share nothing."""
    one, two = inference.header, training.header
    functions = [h.kind in WITH_INPUTS for h in (one, two)]
    if any(functions) and not all(functions):
        raise GraphdiffError(f"a capture of {NOUNS[one.kind]} and one of {NOUNS[two.kind]} share no probe",
                             fix="compare a function or a dumped graph with another, a model with a model")
    for name, header, capture in (("inference", one, inference), ("training", two, training)):
        if capture.probe is None:
            raise GraphdiffError(f"the {name} capture was never probed", where=header.model.name, fix="capture it again")
        check_size(capture, name)
    if all(functions):
        if one.kind == two.kind == "function" and one.probe.seed != two.probe.seed:
            raise GraphdiffError("the functions were captured with inputs of different seeds",
                                 where=f"{one.probe.seed} and {two.probe.seed}", fix="capture both with the same --seed")
        return
    if one.model.fingerprint != two.model.fingerprint:
        where, fix = model_difference(one, two)
        raise GraphdiffError("the captures are of different models or weights", where=where, fix=fix)
    if (one.probe.tokens, one.probe.positions) != (two.probe.tokens, two.probe.positions):
        raise GraphdiffError("the captures were probed with different tokens",
                             where=f"{len(one.probe.tokens)} and {len(two.probe.tokens)} tokens", fix="capture both sides with the same --tokens")


def check_size(capture: Capture, name: str = "") -> None:
    """Raises GraphdiffError where evaluating the program would take unreasonable memory."""
    total, nodes = 0, capture.program.nodes
    for n, node in enumerate(nodes):
        if n in capture.probe.pins or node.op == "leaf" and n not in capture.program.data:
            continue
        total += node.size
        for operand in node.operands:
            size, whole = math.prod(operand.shape), sum(nodes[m].size for m in operand.nodes if nodes[m].op == "leaf")
            if node.op != "mm" or size > whole:  # products read their weights a slice at a time
                total += size
        if node.op == "attention":
            total += math.prod(node.operands[0].shape[:-1]) * node.operands[1].shape[-2]
    total += sum(math.prod(o.operand.shape) for o in capture.program.outputs)
    if total > MOST_ELEMENTS:
        raise GraphdiffError(f"the {name} capture has ops over {total} elements, more than can be compared ({MOST_ELEMENTS})",
                             where=capture.header.model.name, fix="capture fewer layers or tokens (--layers, --tokens)")


def sides_of(inference: Capture, training: Capture) -> tuple[Side, Side, dict[int, np.ndarray]]:
    """Both sides, and the wide numbers of training leaves that are roundings of what inference computes.

    Functions keep their inputs, so they are probed again, knowing of each other: leaves that are the rounding of
    something the other side computes are read as that.
    """
    if inference.header.kind not in WITH_INPUTS:
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
