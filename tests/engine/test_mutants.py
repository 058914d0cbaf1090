"""A rounding planted on any one intermediate of the engine's kernels is seen unless it changes no bit."""

import re
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from mutants import Mutant, mutants_of, planted

from graphdiff.capture.probe_tokens import probe_tokens
from graphdiff.capture.vllm.program import engine_program
from graphdiff.compare.diff import Diff, diff_sides
from graphdiff.compare.side import Side
from graphdiff.compare.values import share_of
from graphdiff.findings.positions import value_node
from graphdiff.probe import probe
from graphdiff.probe.dequantise import Skeleton
from graphdiff.probe.sketch import element_hashes
from graphdiff.program import Evaluation, Options
from graphdiff.store import read_capture

pytestmark = pytest.mark.engine
pytest.importorskip("vllm")

ALL = 137
SAMPLING = 0.08
"""Shares are counted on samples of 256 elements."""


class Lab:
    """The base comparison, and the same for each mutant."""

    def __init__(self, captures) -> None:
        capture = read_capture(captures.training("qwen3-tiny").path)
        self.training = Side(capture.program, capture.probe, capture.program.data)
        self.training_weights = read_capture(captures.training("qwen3-tiny").weights).program.data
        self.raw = captures.raw("qwen3-tiny")
        self.probe = probe_tokens(self.raw.config, 8)
        self.engine, self.engine_bits = self.lowered(self.raw)
        self.mutants = mutants_of(self.raw, self.engine.program)
        self.base = diff_sides(self.engine, self.training)
        self.base_bits = _bits(self.engine)
        self._shares: Shares | None = None

    def lowered(self, raw) -> tuple[Side, dict]:
        program, bits = engine_program(raw, *self.probe)
        return Side(program, probe(program, bits, static_rule=True, pin_anchors=True), program.data), bits

    @property
    def shares(self) -> "Shares":
        if self._shares is None:
            self._shares = Shares(self)
        return self._shares

    def tried(self, mutant: Mutant) -> "Outcome":
        side, _ = self.lowered(planted(self.raw, mutant))
        diff = diff_sides(side, self.training)
        changes_bits = not all(np.array_equal(a, b) for a, b in zip(self.base_bits, _bits(side), strict=True))
        return Outcome(mutant, _seen(diff) != _seen(self.base), changes_bits, _training(diff), _inference(diff), diff)


@dataclass
class Outcome:
    """training: share by node of training; inference: share by (kernel, name)."""

    mutant: Mutant
    seen: bool
    changes_bits: bool
    training: dict[int, float]
    inference: dict[tuple[str, str], float]
    diff: Diff

    def partial(self) -> bool:
        return any(s < 0.95 for s in (*self.training.values(), *self.inference.values()))


class Shares:
    """How much of a value's copies one copy makes up, counted on all elements (no sketches, no pairing)."""

    def __init__(self, lab: Lab) -> None:
        self.engine = _hashes(lab.engine, lab.engine_bits)
        self.training = _hashes(lab.training, lab.training_weights)
        self.program = lab.engine.program

    def of(self, mutant: Mutant) -> tuple[set[int], float]:
        """Training's nodes of the mutant's value, and its part of the engine's copies."""
        mine = [h for n, h in self.engine.items() if (self.program.site(n).kernel, self.program.site(n).name) == (mutant.kernel, mutant.tmp)
                and self.program.site(n).code == mutant.piece]
        mine = np.unique(np.concatenate(mine))
        values = {n for n, h in self.training.items() if np.isin(mine, h).mean() > 0.95}
        whole = np.unique(np.concatenate([self.training[n] for n in values]))
        copies = [h.size for h in self.engine.values() if np.isin(h, whole).mean() > 0.95]
        return values, mine.size / sum(copies)


def _hashes(side: Side, bits: dict) -> dict[int, np.ndarray]:
    skeleton = Skeleton(side.program, bits, static_rule=True)
    return {n: np.unique(element_hashes(skeleton.flat(n))) for n, node in enumerate(side.program.nodes)
            if node.kind == "arith" and node.dynamic and side.data.live[n] and side.data.exact_slot[n] < 0}


def _bits(side: Side) -> list[np.ndarray]:
    """What anchors read and the program returns, on the same anchors."""
    evaluation = Evaluation(side.program, side.bits, Options(pins=dict(side.data.pins)))
    found = [np.array(evaluation.read(o, (n, i))) for n, node in enumerate(side.program.nodes) if node.op in ("mm", "attention")
             for i, o in enumerate(node.operands) if any(side.program.nodes[m].dynamic for m in o.nodes)]
    return found + [evaluation.output(i) for i in range(len(side.program.outputs))]


def _training(diff: Diff) -> dict[int, float]:
    return {value_node(diff.training.side, v.reads[0]): share_of(diff.training.pairing, v) for v in diff.training.values}


def _inference(diff: Diff) -> dict[tuple[str, str], float]:
    site = diff.inference.side.program.site
    nodes = {value_node(diff.inference.side, v.reads[0]): v for v in diff.inference.values}
    return {(site(n).kernel, site(n).name): share_of(diff.inference.pairing, v) for n, v in nodes.items()}


def _seen(diff: Diff) -> tuple:
    """All a report says: which values, how much of them, read by what."""
    side = diff.training.side
    reads = {n: tuple(sorted((side.consumer[m.row], side.slot[m.row]) for m in v.reads)) for v in diff.training.values
             for n in [value_node(side, v.reads[0])]}
    return {n: (reads[n], round(s, 1)) for n, s in _training(diff).items()}, _inference(diff)


@pytest.fixture(scope="module")
def lab(captures) -> Lab:
    torch.set_num_threads(1)
    return Lab(captures)


def _judge(lab: Lab, outcomes: list[Outcome]) -> dict[str, int]:
    """Every outcome is right; how many of each kind."""
    missed = [o.mutant for o in outcomes if o.seen != o.changes_bits]
    assert not missed, missed
    for o in outcomes:
        if not o.seen:
            continue
        exact = " / " in o.mutant.text  # a mean over a power of two: the value is the sum's
        assert all(kernel == o.mutant.kernel and (name == o.mutant.tmp or exact) for kernel, name in o.inference), (o.mutant, o.inference)
        changed = {n for n in _training(lab.base) if _seen(o.diff)[0].get(n) != _seen(lab.base)[0][n]}
        assert bool(changed) != bool(o.inference) and len(changed) <= 1, (o.mutant, changed, o.inference)
        if exact or not re.fullmatch(r"triton_per_fused_\d", o.mutant.kernel):
            continue
        # The q/k norm and RoPE kernel computes each half anew, for the product with cos and the one with sin.
        values, part = lab.shares.of(o.mutant)
        assert changed <= values, (o.mutant, changed)
        found = [1 - o.training.get(n, 0.0) for n in changed] or list(o.inference.values())
        assert found[0] == pytest.approx(part, abs=SAMPLING), (o.mutant, found, part)
    seen = [o for o in outcomes if o.seen]
    return {"seen": len(seen), "no-op": len(outcomes) - len(seen), "partial": sum(o.partial() for o in seen)}


def test_every_third_mutant(lab):
    assert len(lab.mutants) == ALL
    figures = _judge(lab, [lab.tried(m) for m in lab.mutants[::3]])
    print(figures)
    assert figures["seen"] > 35 and figures["no-op"] > 2 and figures["partial"] > 10


@pytest.mark.slow
def test_all_mutants(lab):
    figures = _judge(lab, [lab.tried(m) for m in lab.mutants])
    print(figures)
    assert figures["seen"] == 122 and figures["no-op"] == 15
