"""`show`: one capture as plain data."""

from __future__ import annotations

from collections import Counter
from typing import Any

from graphdiff.compare.side import Side
from graphdiff.findings.regions import fold_path
from graphdiff.store import Capture


def listing_of(capture: Capture) -> dict[str, Any]:
    """What ran, its kernels, and every rounding event by place, layers folded."""
    h = capture.header
    side = Side(capture.program, capture.probe, capture.program.data) if capture.probe is not None else None
    return {
        "capture": {"kind": h.kind, "model": h.model.name, "layers": h.model.layers, "mode": h.mode, "target": h.target,
                    "shapes": h.shapes, "inductor options": dict(h.inductor), "versions": dict(h.versions), "probe tokens": len(h.probe.tokens)},
        "program": {"nodes": len(capture.program.nodes), **{k: v for k, v in sorted(
            Counter(n.kind for n in capture.program.nodes).items())}},
        "kernels": [{"kernel": k.name, "piece": k.code, "kind": k.kind} for k in h.kernels],
        "roundings": _roundings(side) if side is not None else [],
        "not captured": list(h.not_captured),
        "differences": list(h.differences),
        "notes": list(h.notes),
    }


def _roundings(side: Side) -> list[dict[str, Any]]:
    """Live round nodes that are events, by module, line and kernel."""
    found: Counter = Counter()
    places: dict[Any, dict[str, Any]] = {}
    for n, node in enumerate(side.program.nodes):
        if node.op != "round" or not side.data.live[n] or not node.dynamic:
            continue
        site = side.program.site(n)
        state = int(side.data.value_state[n])
        event = "partly" if state < 0 else "yes" if side.data.states[state][1] else "no: representable already"
        key = (fold_path(site.module), site.kernel, site.name if not site.module else "", site.file, site.line, site.column, node.dtype, event)
        found[key] += 1
        places.setdefault(key, {"module": key[0], "kernel": site.kernel, "value": site.text or site.name, "dtype": node.dtype,
                                "changes bits": event, "where": f"{site.file}:{site.line}" if site.file else f"{site.code}:{site.code_line}"})
    return [{**places[k], "times": c} for k, c in found.items()]
