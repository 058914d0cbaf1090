"""What `graphdiff rules list` and `rules show` say, as plain data."""

from __future__ import annotations

import difflib
from typing import Any

from graphdiff.errors import GraphdiffError
from graphdiff.rules.model import Rule, load_rules


def rules_list() -> list[dict[str, Any]]:
    """A row per rule, by name."""
    return [{"name": r.id, "kind": r.data.kind, "title": r.data.title, "values": len(r.data.values)}
            for r in sorted(load_rules(), key=lambda r: r.id)]


def find_rule(name: str) -> Rule:
    """The rule of that name. Raises GraphdiffError, with near names, if there is none."""
    rules = {r.id: r for r in load_rules()}
    if name not in rules:
        near = difflib.get_close_matches(name, rules, 3) or [r for r in sorted(rules) if name.lower() in r]
        raise GraphdiffError(f"no rule {name!r}", fix=f"did you mean {' or '.join(near)}?" if near else "graphdiff rules list names them all")
    return rules[name]


def rules_show(name: str) -> dict[str, Any]:
    """Everything one rule says."""
    data = find_rule(name).data
    return {
        "name": data.id,
        "title": data.title,
        "kind": data.kind,
        "priority": data.priority,
        "description": " ".join(data.description.split()),
        "why": " ".join(data.why.split()),
        "what to do": " ".join(data.advice.split()),
        "documentation": f"docs/rules/{data.id}.md",
        "values": [{"value": v.name, "role": v.role, "pattern": " ".join(v.pattern.split())} for v in data.values],
        "references": list(data.references),
        "examples": [{"example": f.example, "expects": ", ".join(f.values)} for f in data.fires]
        + [{"example": s.example, "expects": f"nothing: {s.why}"} for s in data.silent],
    }
