"""`show`: one capture as plain data."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from graphdiff.compare.side import Side
from graphdiff.findings.header import shapes_of
from graphdiff.findings.regions import fold_path
from graphdiff.program.source_path import package_path
from graphdiff.store import Capture

SCHEMA = 1


def listing_of(capture: Capture, name_values: Any) -> dict[str, Any]:
    """What ran, its kernels, and every rounding by place, layers folded. `name_values`: as for a report."""
    h = capture.header
    side = Side(capture.program, capture.probe, capture.program.data) if capture.probe is not None else None
    return {
        "schema": SCHEMA,
        "capture": {"kind": h.kind, "model": h.model.name, "layers": h.model.layers or None, "mode": h.mode, "target": h.target,
                    "shapes": shapes_of(h), "inductor options": dict(h.inductor), "versions": dict(h.versions),
                    "probe tokens": len(h.probe.tokens) or None, "seed": h.probe.seed},
        "program": {"nodes": len(capture.program.nodes), **{k: v for k, v in sorted(
            Counter(n.kind for n in capture.program.nodes).items())}},
        "kernels": [{"kernel": k.name, "piece": k.code, "kind": k.kind} for k in h.kernels],
        "roundings": _roundings(side, name_values) if side is not None else [],
        "not captured": list(h.not_captured),
        "differences": list(h.differences),
        "notes": list(h.notes),
    }


def _roundings(side: Side, name_values: Any) -> list[dict[str, Any]]:
    """Live rounds, by module, line and kernel. One of a format that holds all elements already changes no bits."""
    found: Counter = Counter()
    places: dict[Any, dict[str, Any]] = {}
    rounds = [n for n, node in enumerate(side.program.nodes) if node.op == "round" and side.data.live[n] and node.dynamic]
    names = _names(side, rounds, name_values)
    for n in rounds:
        site, dtype = side.program.site(n), side.program.nodes[n].dtype
        changes = side.changes_bits(n)
        key = (fold_path(site.module), site.kernel, names[n], site.file, site.line, site.column, dtype, changes)
        found[key] += 1
        code = f"{site.code}:{site.code_line}" if site.code_line else site.code
        places.setdefault(key, {"value": names[n], "module": key[0], "kernel": site.kernel, "dtype": dtype, "changes bits": changes is not False,
                                "only some elements": True if changes is None else None,
                                "where": f"{package_path(site.file)}:{site.line}" if site.file else code})
    return [{**places[k], "times": c} for k, c in found.items()]


@dataclass
class _Read:
    row: int
    bases: tuple[int, ...]


@dataclass
class _Value:
    """What rules name: a value by the rows that read it."""

    reads: list[_Read]


def _names(side: Side, rounds: list[int], name_values: Any) -> dict[int, str]:
    """What a person would call each rounded value. One that changes no bits is called after its own line (`-x2`)."""
    bases = {n: next((b for b in side.bases_of_node(n) if side.program.nodes[b].kind != "leaf"), n) for n in rounds}
    read = {b: rows for b in dict.fromkeys(bases.values()) if (rows := side.readers.get(b))}
    named = {b: naming.value for b, naming in zip(read, name_values(side, [_Value([_Read(r, (b,)) for r in rows]) for b, rows in read.items()]))}
    found = {}
    for n, b in bases.items():
        op, text = side.program.nodes[b].op, side.program.site(n).text
        if side.changes_bits(n) is False and text:
            found[n] = text
        else:
            found[n] = "token embedding" if op == "embedding" else named.get(b) or side.program.site(b).text or f"{op}(...)"
    return found
