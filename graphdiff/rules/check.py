"""`graphdiff rules check`: every rule against its own examples.

An example is a file with `inference`, `training` and `inputs`, as the cases in tests/cases. How two functions are
compared is given from outside (`compare`): this module knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphdiff.rules.model import Rule, load_rules

Compare = Callable[[str, str, str], Any]
"""compare(inference, training, inputs), each FILE.py:FUNCTION, returns a report: `regions` with `rule` and
`moved`, whose entries have a `value`."""


def run(compare: Compare, progress: Callable[[str], None] | None = None, rules: Sequence[Rule] | None = None) -> list[dict[str, Any]]:
    """A result per rule and example: rule, example, expected, found, holds, problem (empty if it holds)."""
    rules = load_rules() if rules is None else rules
    reports: dict[str, Any] = {}
    results = []
    for rule in rules:
        for example in (*rule.data.fires, *rule.data.silent):
            path = str(rule.path.parent / example.example)
            if path not in reports:
                if progress:
                    progress(example.example)
                reports[path] = compare(f"{path}:inference", f"{path}:training", f"{path}:inputs")
            results.append(_result(rule, example.example, sorted(getattr(example, "values", [])), reports[path]))
    return results


def rules_check(compare: Compare, progress: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
    """What does not hold: rule, example and problem of each. Empty: every rule fires where it should, and only there."""
    return [{k: r[k] for k in ("rule", "example", "problem")} for r in run(compare, progress) if not r["holds"]]


def _result(rule: Rule, example: str, expected: list[str], report: Any) -> dict[str, Any]:
    regions = [r for r in report.regions if r.rule == rule.id]
    found = sorted({m.value for r in regions for m in r.moved})
    problem = ""
    if found != expected:
        problem = f"names {', '.join(found) or 'nothing'}; expected {', '.join(expected) or 'nothing'}"
    return {"rule": rule.id, "example": example, "expected": expected, "found": found, "holds": not problem, "problem": problem}
