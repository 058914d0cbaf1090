"""Where the patched forward rounds, compared with the engine again: nothing left in its parts, nothing new elsewhere."""

from __future__ import annotations

from collections import Counter

import numpy as np

from graphdiff.compare.witness import BitCount, count_bits
from graphdiff.program import Evaluation, Options
from graphdiff.report.model import Bits, Report
from graphdiff.store import Capture
from graphdiff.verify.model import Check


def moved_values(report: Report) -> Counter:
    """(where, value, side that rounds it) -> times, layers not folded."""
    return Counter({(m.module, m.value, m.rounded_in): 0 for r in report.regions for m in r.moved}) + Counter(
        key for r in report.regions for m in r.moved for key in [(m.module, m.value, m.rounded_in)] * m.instances)


def check_rounding(before: Report, after: Report, aligned: int) -> Check:
    """`aligned`: how many moved values (layers not folded) the applied parts claim to align."""
    one, two = moved_values(before), moved_values(after)
    expected = sum(one.values()) - aligned
    left = sum(two.values())
    gone = sum(one.values()) - left
    new = [f"{value} in {module or 'the model'} ({side} only)" for (module, value, side), n in two.items() if n > _like(one, value, side)]
    ok = left == expected and not new
    detail = f"{sum(one.values())} moved values before, {left} after; the parts align {aligned}"
    if new:
        detail += f"; new: {', '.join(sorted(new)[:3])}"
    elif not ok:
        detail += f", and {gone} went"
    return Check(name="rounding places", ok=ok, detail=detail,
                 numbers={"before": sum(one.values()), "after": left, "aligned": aligned, "new": sorted(new)})


def _like(found: Counter, value: str, side: str) -> int:
    """Times a value of this name moved before, wherever: a patched op stands in another module than what it replaced."""
    return sum(n for (_, v, s), n in found.items() if (v, s) == (value, side))


def check_matched(before: Report, after: Report) -> Check:
    """Values that found no partner after patching would hide roundings."""
    was, now = before.summary.unmatched, after.summary.unmatched
    opaque = after.coverage.training.opaque - before.coverage.training.opaque
    ok = now.training <= was.training and now.inference <= was.inference and opaque <= 0
    return Check(name="every value matched", ok=ok,
                 detail=f"{after.summary.matched} matched; without a partner: engine {now.inference}, training {now.training}"
                 + (f"; {opaque} more opaque" if opaque > 0 else ""))


def check_bits(engine: Capture, patched: Capture, original: Capture, reports: tuple[Report, Report], complete: bool) -> Check:
    """Final hidden states of both programs, each under its own schedule, with the same arithmetic for anchors.

    Without the engine's weights its anchors keep the probe's numbers: what then differs is what lies behind the last one.
    """
    if _runs(engine):
        wanted = _hidden(engine)
        before, after = (count_bits(_hidden(c), wanted, "bfloat16") for c in (original, patched))
        how = "same anchors, computed from the weights"
    else:
        witnesses = [r.whole_program.before if r.whole_program else None for r in reports]
        if None in witnesses:
            return Check(name="final hidden states", ok=None, detail="the two programs have no output in common")
        before, after = witnesses
        how = "anchors pinned to the probe's numbers, for the engine capture holds no weights: it sees what follows the last anchor; --keep-weights sees all"
    detail = f"{_equal(before)} of bits equal the engine program's before, {_equal(after)} after ({how})"
    ok = after.differing == 0 if complete else after.differing <= before.differing * 1.25
    if not complete:
        detail += "; not all parts applied, so all bits are not expected"
    return Check(name="final hidden states", ok=ok, detail=detail,
                 numbers={"elements": after.elements, "differing_before": before.differing, "differing_after": after.differing,
                          "max_ulp_after": after.max_ulp})


def _equal(count: BitCount | Bits) -> str:
    return f"{100 * (1 - count.differing / max(count.elements, 1)):.1f} %"


def _runs(capture: Capture) -> bool:
    return all(n in capture.program.data for n, node in enumerate(capture.program.nodes) if node.op == "leaf")


def _hidden(capture: Capture) -> np.ndarray:
    return Evaluation(capture.program, dict(capture.program.data), Options()).output(0).reshape(-1).astype(np.float32)
