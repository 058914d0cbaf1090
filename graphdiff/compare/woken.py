"""Roundings of training that change nothing while others stand, and do once those are gone.

`x + 1.5` of a BF16 number may be a BF16 number always: its rounding is no event. Give training inference's roundings, so
that x comes unrounded, and the sum is rounded all the same. A proof then fails, and this says why.
"""

from __future__ import annotations

import numpy as np

from graphdiff.compare.side import Side
from graphdiff.compare.transplant import Bench
from graphdiff.errors import Damage, GraphdiffError
from graphdiff.program import Evaluation
from graphdiff.program.evaluate import CHUNK

NAMED = 3


def woken(bench: Bench) -> list[int]:
    """Round nodes of training that change nothing in its own schedule, and something in inference's."""
    return bench.once(("woken",), lambda: _woken(bench))


def _woken(bench: Bench) -> list[int]:
    before, after = bench.original(np.float32), bench.transplanted(np.float32)
    nodes, side = bench.training.program.nodes, bench.training
    rounds = [n for n, node in enumerate(nodes) if node.op == "round" and node.size <= CHUNK and not _is_event(side, n)]
    return [n for n in rounds if (_changed(after, n) & ~_changed(before, n)).any()]


def _is_event(side: Side, n: int) -> bool:
    """True if the probe saw it change an element that anybody reads."""
    state = int(side.data.value_state[n])
    return state < 0 or bool(side.data.states[state][1])


def _changed(evaluation: Evaluation, n: int) -> np.ndarray:
    """Elements that the rounding changes; none where it cannot be evaluated (a weight that was not kept)."""
    try:
        x = evaluation.read(evaluation.program.nodes[n].operands[0], (n, 0)).reshape(-1)
        y = evaluation.flat(n)
    except Damage:
        raise
    except GraphdiffError:
        return np.zeros(evaluation.program.nodes[n].size, bool)
    return (x != y) & ~(np.isnan(x) & np.isnan(y))


def reason_of(nodes: list[int], training: Side) -> str:
    """What a report says of them, empty without any."""
    if not nodes:
        return ""
    names = list(dict.fromkeys(site.text or site.name for site in map(training.program.site, nodes)))
    what = ", ".join(names[:NAMED]) + (" ..." if len(names) > NAMED else "")
    return f"training rounds more once these roundings are gone ({what}): move these, then compare again"
