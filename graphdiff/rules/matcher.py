"""Matching a pattern at one node of a value graph, with backtracking; every answer is remembered."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from graphdiff.program.types import Operand
from graphdiff.rules.graph import ValueGraph
from graphdiff.rules.kinds import KINDS, Found
from graphdiff.rules.pattern import Any, Call, Choice, Number, Pattern, Variable

Bindings = dict[str, Found]
Reads = list[tuple[Operand, tuple[int, ...]]]

MOST = 4
"""Ways in which one pattern may match at one node that are looked at."""


class Matcher:
    """Patterns at nodes of one graph."""

    def __init__(self, graph: ValueGraph) -> None:
        self.graph, self.nodes = graph, graph.program.nodes
        self._known: dict[tuple[int, int], list[Bindings]] = {}

    def matches(self, pattern: Pattern, node: int) -> list[Bindings]:
        """Bindings of each way the pattern matches with `node` as its root, at most MOST."""
        key = (id(pattern), node)
        if key not in self._known:
            found: list[Bindings] = []
            for bindings in self._node(pattern, Found((node,)), {}):
                if bindings not in found:
                    found.append(bindings)
                if len(found) == MOST:
                    break
            self._known[key] = found
        return self._known[key]

    def _node(self, p: Pattern, here: Found, env: Bindings) -> Iterator[Bindings]:
        """`here` holds exactly one base."""
        if isinstance(p, Call):
            return self._call(p, here.bases[0], env)
        if isinstance(p, Variable):
            return self._variable(p, here, env)
        if isinstance(p, Choice):
            op = self.nodes[here.bases[0]].op
            return chain.from_iterable(self._node(o, here, env) for o in p.options if o.heads is None or op in o.heads)
        if isinstance(p, Number):
            node = self.nodes[here.bases[0]]
            return iter([env] if node.op == "const" and abs(node.attrs["value"]) == abs(p.value) else ())
        return iter([env])

    def _variable(self, p: Variable, here: Found, env: Bindings) -> Iterator[Bindings]:
        if p.name in env and not self.graph.same(env[p.name].bases, here.bases):
            return iter(())
        if p.kind and not KINDS[p.kind.name](self.graph, here, p.kind.argument):
            return iter(())
        inside = env if p.name in env else {**env, p.name: here}
        return iter([inside]) if p.inner is None else self._node(p.inner, here, inside)

    def _call(self, p: Call, n: int, env: Bindings) -> Iterator[Bindings]:
        if self.nodes[n].op not in p.ops:
            return
        reads = self.graph.reads(n)
        if len(p.arguments) > len(reads):
            return
        yield from self._operands(p.arguments, reads, n, env)
        if p.either_order:
            yield from self._operands(p.arguments, reads[1::-1], n, env)

    def _operands(self, patterns: tuple[Pattern, ...], reads: Reads, reader: int, env: Bindings) -> Iterator[Bindings]:
        if not patterns:
            yield env
            return
        if any(p.heads is not None and not any(self.nodes[b].op in p.heads for b in bases)
               for p, (_, bases) in zip(patterns, reads)):
            return
        for inside in self._operand(patterns[0], *reads[0], reader, env):
            yield from self._operands(patterns[1:], reads[1:], reader, inside)

    def _operand(self, p: Pattern, operand: Operand, bases: tuple[int, ...], reader: int, env: Bindings) -> Iterator[Bindings]:
        if isinstance(p, Variable) and p.inner is None:
            yield from self._variable(p, Found(bases, operand, reader), env)
        elif isinstance(p, Choice):
            for option in p.options:
                if option.heads is None or any(self.nodes[b].op in option.heads for b in bases):
                    yield from self._operand(option, operand, bases, reader, env)
        elif isinstance(p, Any):
            yield env
        else:
            for b in bases:
                if p.heads is None or self.nodes[b].op in p.heads:
                    yield from self._node(p, Found((b,), operand, reader), env)
