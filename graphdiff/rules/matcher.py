"""Matching a pattern at one node of a value graph, with backtracking; every answer is remembered."""

from __future__ import annotations

from collections.abc import Iterator

from graphdiff.program.types import Operand
from graphdiff.rules.graph import ValueGraph
from graphdiff.rules.kinds import KINDS, Found
from graphdiff.rules.pattern import Any, Call, Choice, Number, Pattern, Variable

Bindings = dict[str, Found]

MOST = 4
"""Ways in which one pattern may match at one node that are looked at."""


class Matcher:
    """Patterns at nodes of one graph."""

    def __init__(self, graph: ValueGraph) -> None:
        self.graph = graph
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
        if isinstance(p, Any):
            yield env
        elif isinstance(p, Variable):
            yield from self._variable(p, here, env)
        elif isinstance(p, Choice):
            for option in p.options:
                yield from self._node(option, here, env)
        elif isinstance(p, Number):
            node = self.graph.program.nodes[here.bases[0]]
            if node.op == "const" and abs(node.attrs["value"]) == abs(p.value):
                yield env
        else:
            yield from self._call(p, here.bases[0], env)

    def _variable(self, p: Variable, here: Found, env: Bindings) -> Iterator[Bindings]:
        if p.name in env and not self.graph.same(env[p.name].bases, here.bases):
            return
        if p.kind and not KINDS[p.kind.name](self.graph, here, p.kind.argument):
            return
        inside = env if p.name in env else {**env, p.name: here}
        if p.inner is None:
            yield inside
        else:
            yield from self._node(p.inner, here, inside)

    def _call(self, p: Call, n: int, env: Bindings) -> Iterator[Bindings]:
        node = self.graph.program.nodes[n]
        if node.op not in p.ops or len(p.arguments) > len(node.operands):
            return
        orders = [node.operands[:len(p.arguments)]]
        if p.either_order:
            orders.append(orders[0][::-1])
        for operands in orders:
            yield from self._operands(p.arguments, operands, n, env)

    def _operands(self, patterns: tuple[Pattern, ...], operands: tuple[Operand, ...], reader: int, env: Bindings) -> Iterator[Bindings]:
        if not patterns:
            yield env
            return
        for inside in self._operand(patterns[0], operands[0], reader, env):
            yield from self._operands(patterns[1:], operands[1:], reader, inside)

    def _operand(self, p: Pattern, operand: Operand, reader: int, env: Bindings) -> Iterator[Bindings]:
        bases = self.graph.operand_bases(operand)
        if isinstance(p, Choice):
            for option in p.options:
                yield from self._operand(option, operand, reader, env)
        elif isinstance(p, Any):
            yield env
        elif isinstance(p, Variable) and p.inner is None:
            yield from self._variable(p, Found(bases, operand, reader), env)
        else:
            for b in bases:
                yield from self._node(p, Found((b,), operand, reader), env)
