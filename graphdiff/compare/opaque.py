"""What one side hides: everything the other side computes between the inputs and the output of an opaque node.

Flash attention against attention spelled out: the scores, their scale, the mask and the probabilities lie inside the
engine's kernel. Their roundings are neither matched nor moved.
"""

from __future__ import annotations

from graphdiff.compare.moved import Pairing
from graphdiff.compare.side import Side

HIDING = ("attention", "opaque")


def hidden_nodes(own_to_other: Pairing, other_to_own: Pairing) -> dict[int, int]:
    """Own nodes that lie inside a hiding node of the other side -> that node."""
    own, other = own_to_other.own, own_to_other.other
    hidden: dict[int, int] = {}
    for anchor in other.consumers:
        if other.program.nodes[anchor].op not in HIDING or other.value(anchor) < 0:
            continue
        ends = other_to_own.nodes(other.value(anchor))
        if not ends or any(own.program.nodes[n].op in HIDING for n in ends):
            continue
        inputs = [[n for n in other_to_own.nodes(other.sketch[row])] for row in other.rows_of[anchor] if other.sketch[row] >= 0]
        borders = {n for nodes in inputs for n in nodes}
        # With one token attention gives its value back: what comes after the query is the output, not an input.
        behind = _descendants(own, inputs[0], max(ends)) & set(ends) if inputs and inputs[0] else set()
        borders -= behind
        stack = [n for n in ends if n not in borders]
        while stack:
            n = stack.pop()
            if n in hidden or n in borders or own.program.nodes[n].kind == "leaf":
                continue
            hidden[n] = anchor
            stack.extend(m for o in own.program.nodes[n].operands for m in o.nodes)
    return hidden


def _descendants(side: Side, nodes: list[int], last: int) -> set[int]:
    """Nodes up to `last` that depend on some of `nodes`, themselves left out."""
    found = set(nodes)
    for n in range(min(nodes), last + 1):
        if n not in found and any(m in found for o in side.program.nodes[n].operands for m in o.nodes):
            found.add(n)
    return found - set(nodes)
