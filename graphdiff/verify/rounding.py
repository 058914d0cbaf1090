"""Where the patched forward rounds, compared with the engine again: nothing left in its parts, nothing new elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container

import numpy as np

from graphdiff.compare.witness import BitCount, count_bits
from graphdiff.program import Evaluation, Options
from graphdiff.report.model import Bits, Report
from graphdiff.report.words import percent
from graphdiff.store import Capture
from graphdiff.verify.model import Check


def moved_values(report: Report) -> Counter:
    """(where, value, side that rounds it) -> times, layers not folded."""
    return Counter({(m.module, m.value, m.rounded_in): 0 for r in report.regions for m in r.moved}) + Counter(
        key for r in report.regions for m in r.moved for key in [(m.module, m.value, m.rounded_in)] * m.instances)


def check_rounding(before: Report, after: Report, aligned: int, *, rules: Container[str] = (), unit: str = "") -> Check:
    """`aligned`: how many moved values (layers not folded) the applied parts claim to align, those that `rules` name;
    `unit`: the same count as the patch's README has it."""
    one, two = moved_values(before), moved_values(after)
    expected = sum(one.values()) - aligned
    left = sum(two.values())
    gone = sum(one.values()) - left
    new = [f"{value} in {module or 'the model'} ({side} only)" for (module, value, side), n in two.items() if n > _like(one, value, side)]
    ok = left == expected and not new
    detail = f"{sum(one.values())} moved values before, {left} after, counted in every layer; the parts align {aligned}{f' ({unit})' if unit else ''}"
    if new:
        detail += f"; new: {', '.join(sorted(new)[:3])}"
    elif not ok:
        detail += f", and {gone} went; left: {_named(_left(before, two, rules) or two)}"
    return Check(name="rounding places", ok=ok, detail=detail,
                 numbers={"before": sum(one.values()), "after": left, "aligned": aligned, "new": sorted(new)})


def _left(before: Report, two: Counter, rules: Container[str]) -> Counter:
    """The moved values that stay where regions of these rules had some."""
    modules = {m.module for r in before.regions if r.rule in rules for m in r.moved}
    return Counter({key: n for key, n in two.items() if key[0] in modules})


def _named(values: Counter, shown: int = 6) -> str:
    named = [f"{value} in {module or 'the model'} ({n} time{'s' if n != 1 else ''})" for (module, value, _), n in values.items() if n]
    return ", ".join(named[:shown]) + (f" and {len(named) - shown} more" if len(named) > shown else "")


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
    ok, outcome = after.differing == 0, ""
    if not complete:
        # Some parts alone may move bits either way: nothing is claimed of them but that they do no harm.
        ok = None if after.differing <= before.differing * 1.25 else False
        outcome = "no change" if after.differing == before.differing else ""
        detail += "; not all parts are applied: that all bits are equal is not claimed"
    return Check(name="final hidden states", ok=ok, detail=detail, outcome=outcome,
                 numbers={"elements": after.elements, "differing_before": before.differing, "differing_after": after.differing,
                          "max_ulp_after": after.max_ulp})


def _equal(count: BitCount | Bits) -> str:
    return percent(count.elements - count.differing, count.elements)


def _runs(capture: Capture) -> bool:
    return all(n in capture.program.data for n, node in enumerate(capture.program.nodes) if node.op == "leaf")


def _hidden(capture: Capture) -> np.ndarray:
    return Evaluation(capture.program, dict(capture.program.data), Options()).output(0).reshape(-1).astype(np.float32)
