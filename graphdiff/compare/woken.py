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
    before, after = bench.original(np.float32), bench.transplanted(np.float32)
    nodes = bench.training.program.nodes
    rounds = [n for n, node in enumerate(nodes) if node.op == "round" and node.size <= CHUNK]
    return bench.once(("woken",), lambda: [n for n in rounds if not _changes(before, n) and _changes(after, n)])


def _changes(evaluation: Evaluation, n: int) -> bool:
    """False also where it cannot be evaluated: a weight that was not kept."""
    try:
        x = evaluation.read(evaluation.program.nodes[n].operands[0], (n, 0)).reshape(-1)
        y = evaluation.flat(n)
    except Damage:
        raise
    except GraphdiffError:
        return False
    return not np.array_equal(x, y, equal_nan=True)


def reason_of(nodes: list[int], training: Side) -> str:
    """What a report says of them, empty without any."""
    if not nodes:
        return ""
    names = list(dict.fromkeys(site.text or site.name for site in map(training.program.site, nodes)))
    what = ", ".join(names[:NAMED]) + (" ..." if len(names) > NAMED else "")
    return f"training rounds more once these roundings are gone ({what}): move these, then compare again"
