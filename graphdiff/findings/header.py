"""What the report says of each side before any finding: what ran, what was not captured."""

from __future__ import annotations

from graphdiff.report import model
from graphdiff.store import Capture, CaptureInfo


def side_of(capture: Capture, source: str) -> model.Side:
    """The report's description of one capture."""
    h = capture.header
    return model.Side(kind=h.kind, model=h.model.name, versions=dict(h.versions), mode=h.mode, target=h.target, shapes=shapes_of(h),
                      inductor=dict(h.inductor), source=source, probe=model.Probe(tokens=len(h.probe.tokens), seed=h.probe.seed))


def shapes_of(header: CaptureInfo) -> str:
    """Which shapes the side's schedule holds for. Eager code of a model rounds in the same places for any."""
    if header.shapes:
        return header.shapes
    if not header.probe.tokens:
        return "of the inputs"
    if header.mode.startswith("eager"):
        return "any"
    return f"{len(header.probe.tokens)} token{'s' if len(header.probe.tokens) != 1 else ''}"


def coverage_of(inference: Capture, training: Capture) -> model.Coverage:
    """What each capture left out; comparing fills in the counts."""
    made = [model.SideCoverage(not_captured=list(c.header.not_captured), differences=list(c.header.differences))
            for c in (inference, training)]
    return model.Coverage(inference=made[0], training=made[1])


def notes_of(inference: Capture, training: Capture) -> list[str]:
    """Notes of both captures, each with its side's name."""
    return [*_exchanged(inference, training), *_notes(inference, training)]


def _exchanged(inference: Capture, training: Capture) -> list[str]:
    """The order of the operands is the only thing that says which side is which."""
    one, two = inference.header.kind, training.header.kind
    if (one, two) != ("transformers", "vllm"):
        return []
    return [f"the operands look exchanged: INFERENCE is a capture of {one}, TRAINING one of {two}. If that is not meant, give the "
            "engine first; what is said of the two sides is exchanged too"]


def _notes(inference: Capture, training: Capture) -> list[str]:
    return [f"{name}: {note}" for name, c in (("inference", inference), ("training", training)) for note in c.header.notes]
