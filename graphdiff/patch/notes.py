"""Comments for emitted kernels: which values training rounds and the engine does not, said where the kernel computes them."""

from __future__ import annotations

from graphdiff.compare.diff import Diff, Direction
from graphdiff.compare.moved import MovedRead
from graphdiff.compare.side import Side, base_format

LONGEST = 60
"""Characters of training's source in a comment."""


def notes_of(diff: Diff) -> dict[int, str]:
    """Node of the engine's program -> comment (`notes` of emit.emit_region)."""
    notes: dict[int, str] = {}
    for value in diff.training.values:
        text = f"not rounded; training rounds it to {base_format(value.event)}{_source(diff.training.side, value.reads[0])}"
        for read in value.reads:
            for n in _formed_there(diff.training, read):
                notes.setdefault(n, text)
    for value in diff.inference.values:
        for read in value.reads:
            for n in read.bases:
                notes.setdefault(n, f"rounded to {base_format(value.event)} by the engine; training keeps it in FP32")
    return notes


def _formed_there(direction: Direction, read: MovedRead) -> list[int]:
    """Arithmetic of the engine that forms what training rounds."""
    other = direction.pairing.other
    found = [b for r in read.other_rows for b in other.bases(r)] + list(read.other_nodes)
    return [n for n in found if other.program.nodes[n].kind == "arith"]


def _source(side: Side, read: MovedRead) -> str:
    """Where training computes it: the line of its source."""
    for b in read.bases:
        site = side.program.site(b)
        if side.program.nodes[b].kind != "leaf" and site.text:
            place = f"{site.file.rpartition('/')[2]}:{site.line}" if site.file else site.module
            text = site.text.strip()
            return f": {text if len(text) <= LONGEST else text[:LONGEST] + '...'} ({place})"
    return ""
