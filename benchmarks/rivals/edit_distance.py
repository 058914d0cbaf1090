"""Rival 2: networkx graph edit distance between the ATen graphs of a tiny Qwen3, with a time limit."""

import random
import resource
import time
from difflib import SequenceMatcher

import aten
import networkx
import numpy
import qwen3
import torch


def graph(found):
    g = networkx.DiGraph()
    for i, o in enumerate(found):
        g.add_node(i, op=o.op)
        g.add_edges_from((j, i) for j in o.reads)
    return g


def keys(value):
    """The magnitudes of a value to four digits: equal values share them whatever their layout, slices and sign."""
    if value is None or not value.is_floating_point():
        return numpy.empty(0)
    v = value.detach().double().abs().flatten().numpy()
    v = v[numpy.isfinite(v) & (v != 0)]
    m, e = numpy.frexp(v)
    return numpy.unique(numpy.round(m * 2**13) * 4096 + e)


def same_value(a, b) -> bool:
    if not len(a) or not len(b):
        return False
    small, great = sorted((a, b), key=len)
    return float(numpy.isin(small, great, assume_unique=True).mean()) > 0.8


def measure(layers: int, limit: float = 60.0) -> dict:
    """Pairs of the best edit path found within `limit` seconds, and how many of them hold the same numbers."""
    net = qwen3.model(layers)
    ids = torch.randint(0, 512, (1, 9))
    a = aten.ops(qwen3.inference(net), (ids,), values=True)
    b = aten.ops(qwen3.training(net), (ids,), values=True)
    with torch.no_grad():
        worst = (qwen3.inference(net)(ids) - qwen3.training(net)(ids)).abs().max().item()
    assert worst < 1e-3, f"the two spellings are not one model: {worst}"
    ka, kb = [keys(o.value) for o in a], [keys(o.value) for o in b]
    pairable = sum(any(same_value(x, y) for y in kb) for x in ka)
    best, start = None, time.perf_counter()
    for nodes, _edges, cost in networkx.optimize_edit_paths(
        graph(a), graph(b), node_match=lambda x, y: x["op"] == y["op"], timeout=limit
    ):
        best = (nodes, cost)
    seconds = time.perf_counter() - start
    pairs = [(i, j) for i, j in best[0] if i is not None and j is not None] if best else []
    same_op = sum(a[i].op == b[j].op for i, j in pairs)
    right = sum(same_value(ka[i], kb[j]) for i, j in pairs)
    return {
        "nodes": (len(a), len(b)), "seconds": seconds, "proven": seconds < limit, "cost": best and best[1],
        "paired": same_op / min(len(a), len(b)), "recall": right / pairable,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }  # fmt: skip


def opname_recall(layers: int, reordered: bool = False) -> dict:
    """The same score for difflib's pairs; `reordered` gives one graph another order that its edges allow as well."""
    net = qwen3.model(layers)
    ids = torch.randint(0, 512, (1, 9))
    a = aten.ops(qwen3.inference(net), (ids,), values=True)
    b = aten.ops(qwen3.training(net), (ids,), values=True)
    if reordered:
        a = [a[i] for i in legal_order(graph(a))]
    ka, kb = [keys(o.value) for o in a], [keys(o.value) for o in b]
    pairable = sum(any(same_value(x, y) for y in kb) for x in ka)
    start = time.perf_counter()
    blocks = SequenceMatcher(None, [x.op for x in a], [x.op for x in b], autojunk=False).get_matching_blocks()
    seconds = time.perf_counter() - start
    pairs = [(i + d, j + d) for i, j, n in blocks for d in range(n)]
    right = sum(same_value(ka[i], kb[j]) for i, j in pairs)
    return {
        "nodes": (len(a), len(b)), "seconds": seconds, "paired": len(pairs) / min(len(a), len(b)),
        "recall": right / pairable,
    }  # fmt: skip


def legal_order(g) -> list[int]:
    """A topological order drawn by chance (seed 0)."""
    drawn, waiting = random.Random(0), {n: d for n, d in g.in_degree()}
    ready, order = [n for n, d in waiting.items() if d == 0], []
    while ready:
        node = ready.pop(drawn.randrange(len(ready)))
        order.append(node)
        for after in g.successors(node):
            waiting[after] -= 1
            if waiting[after] == 0:
                ready.append(after)
    return order
