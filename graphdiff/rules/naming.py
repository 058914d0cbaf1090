"""Moved values get the names a person would give them, and the instance of a region they belong to.

Naming only adds words: which values moved was decided before, from their numbers. Patterns are matched near moved
values only, highest priority first.
"""

from __future__ import annotations

import string
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphdiff.rules.graph import ValueGraph
from graphdiff.rules.matcher import Bindings, Matcher
from graphdiff.rules.model import Role, Rule, load_rules
from graphdiff.rules.words import generic_name, short_name


@dataclass(frozen=True)
class Naming:
    """What one moved value is called.

    rule: None where no rule names it. root: the node that stands for the rule's instance; values of one region have
    the same rule and root. order: where the value stands among those of its region.
    """

    rule: str | None
    kind: str
    title: str
    value: str
    root: int | None
    order: int


@dataclass
class _Hit:
    role: Role
    roots: list[int]
    bindings: Bindings


def name_values(side: Any, values: Sequence[Any], rules: Sequence[Rule] | None = None) -> list[Naming]:
    """A naming for each moved value of one side (`compare.values.MovedValue`: its `reads` have `row` numbers and `bases`)."""
    return _Namer(side, values, load_rules() if rules is None else rules).run()


class _Moved:
    """A moved value as rules see it: its bases, who reads it, and what is near downstream (filled as asked)."""

    def __init__(self, side: Any, value: Any) -> None:
        rows = [read.row for read in value.reads]
        self.bases = tuple(sorted({b for read in value.reads for b in read.bases}))
        reads = [(side.consumer[row], side.slot[row]) for row in rows if side.consumer[row] >= 0]
        self.readers = sorted({c for c, _ in reads})
        self.operands = {(c, id(side.program.nodes[c].operands[slot])) for c, slot in reads}
        self.near: dict[int, dict[str, list[tuple[int, int]]]] = {}


class _Namer:
    def __init__(self, side: Any, values: Sequence[Any], rules: Sequence[Rule]) -> None:
        self.graph = ValueGraph(side)
        self.matcher = Matcher(self.graph)
        self.rules = rules
        self.moved = [_Moved(side, v) for v in values]
        self.depth = max((role.depth for rule in rules for role in rule.roles), default=0)

    def run(self) -> list[Naming]:
        found: list[Naming | None] = [None] * len(self.moved)
        for rule in self.rules:
            hits = {i: hit for i, n in enumerate(found) if n is None and not self._is_inside(rule, i) and (hit := self._hit(rule, self.moved[i]))}
            for instance in self._instances(rule, hits):
                root = min(r for i in instance for r in hits[i].roots)
                for i in instance:
                    found[i] = self._naming(rule, hits[i], root)
        for rule in self.rules:
            if rule.data.takes_over:
                self._take_over(rule, found)
        return [n or self._generic(self.moved[i].bases) for i, n in enumerate(found)]

    def _is_inside(self, rule: Rule, i: int) -> bool:
        """True if a rule about any sum or product would speak of an op inside a call (the sum in a logsumexp)."""
        calls = self.graph.calls
        return rule.data.kind == "generic" and any(
            calls.is_composite(n) for b in self.moved[i].bases for n in calls.of(b) if self.graph.program.nodes[n].op != "round")

    def _take_over(self, rule: Rule, found: list[Naming | None]) -> None:
        groups: dict[tuple, list[int]] = defaultdict(list)
        for i, n in enumerate(found):
            if n is not None and n.rule != rule.id:
                groups[n.rule, n.root].append(i)
        for group in groups.values():
            if all(self._hit(rule, self.moved[i]) for i in group):
                for i in group:
                    found[i] = replace(found[i], rule=rule.id, kind=rule.data.kind, title=rule.data.title)

    def _hit(self, rule: Rule, moved: _Moved) -> _Hit | None:
        """The first role that one of the value's bases has; the roots of all that have it."""
        for role in rule.roles:
            roots: list[int] = []
            bindings: Bindings | None = None
            for b in moved.bases:
                if (match := self._match(role, moved, b)) is not None:
                    node, env = match
                    roots += env[role.value.root].bases if role.value.root else (node,)
                    bindings = bindings or env
            if bindings is not None:
                return _Hit(role, sorted(set(roots)), bindings)
        return None

    def _match(self, role: Role, moved: _Moved, base: int) -> tuple[int, Bindings] | None:
        """The nearest place where the role's pattern has this base as its value."""
        near, heads = self._near(moved, base), role.pattern.heads
        ops = [""] if heads is None else [op for op in near if op in heads]
        places = [place for op in ops for place in near[op] if place[1] <= role.depth]
        for node, _ in sorted(places, key=lambda p: p[1]) if len(places) > 1 else places:
            for env in self.matcher.matches(role.pattern, node):
                if self._is_value(role, moved, base, node, env):
                    return node, env
        return None

    def _is_value(self, role: Role, moved: _Moved, base: int, node: int, env: Bindings) -> bool:
        if not role.value.value:
            return base == node
        found = env[role.value.value]
        if base not in found.bases:
            return False
        # Cosines and sines may be two halves of one leaf: then it matters which read moved.
        if self.graph.program.nodes[base].kind == "leaf" and found.operand is not None and moved.readers:
            return (found.reader, id(found.operand)) in moved.operands
        return True

    def _near(self, moved: _Moved, base: int) -> dict[str, list[tuple[int, int]]]:
        """(node, steps) downstream of a base, nearest first, by op; all of them under an empty name."""
        if base not in moved.near:
            by_op: dict[str, list[tuple[int, int]]] = {"": self.graph.downstream(base, self.depth, moved.readers)}
            for place in by_op[""]:
                by_op.setdefault(self.graph.program.nodes[place[0]].op, []).append(place)
            moved.near[base] = by_op
        return moved.near[base]

    def _instances(self, rule: Rule, hits: dict[int, _Hit]) -> list[list[int]]:
        """Hits grouped: those that share a root, or whose roots are parts of one thing; only groups with what it needs."""
        parent: dict[Any, Any] = {}

        def find(x: Any) -> Any:
            parent.setdefault(x, x)
            while parent[x] != x:
                parent[x] = parent[parent[x]]
                x = parent[x]
            return x

        for i, hit in hits.items():
            for root in hit.roots:
                parent[find(("value", i))] = find(root)
                if (key := self._identity(rule, hit, root)) is not None:
                    parent[find(root)] = find(key)
        groups: dict[Any, list[int]] = defaultdict(list)
        for i in hits:
            groups[find(("value", i))].append(i)
        return [g for g in groups.values() if all({hits[i].role.value.role for i in g} & set(need) for need in rule.data.needs)]

    def _identity(self, rule: Rule, hit: _Hit, root: int) -> tuple | None:
        """What two roots of one instance agree in: the same values, read over the same stretch."""
        if not rule.data.identity:
            return None
        parts = []
        for name in rule.data.identity:
            if name not in hit.bindings:
                return None
            bases = hit.bindings[name].bases
            span = self.graph.span(root, bases[0]) if len(bases) == 1 else None
            if span is None:
                return None
            parts.append((tuple(sorted(self.graph.canonical(b) for b in bases)), span))
        return ("identity", *parts)

    def _naming(self, rule: Rule, hit: _Hit, root: int) -> Naming:
        return Naming(rule.id, rule.data.kind, rule.data.title, self._words(hit, rule.data.kind == "generic"), root, hit.role.order)

    def _words(self, hit: _Hit, exactly: bool) -> str:
        text = ""
        for literal, name, _, _ in string.Formatter().parse(hit.role.value.name):
            text += literal
            if name:
                text += short_name(self.graph, name, hit.bindings[name], exactly)
        return text

    def _generic(self, bases: tuple[int, ...]) -> Naming:
        name = generic_name(self.graph, bases) if bases else "value"
        return Naming(None, "generic", name, name, None, 0)
