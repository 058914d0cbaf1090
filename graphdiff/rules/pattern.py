"""Patterns over the graph of values, written as small s-expressions.

    (mul ?x (rsqrt (add (mean (mul ?x ?x)) ?eps:const)))

  (op a b)      a value formed by `op`; `add|sub` allows either; sums and products match in both orders
  (name a b)    a named pattern of `rules/patterns.toml`, its parameters filled in; it may have several spellings
  ?x            anything, called x; the same name means the same value
  ?x:kind       of a kind (`kinds.py`), e.g. `?c:const`; `?m:module(lm_head)` takes an argument
  ?x=(...)      what the inner pattern matches, called x
  1, 0.5        that constant
  _             anything

Rounds, exact ops (negation, abs, maximum, scaling by powers of two) and layout are not written: patterns see through
them, because a rounding moves through them too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from graphdiff.errors import GraphdiffError
from graphdiff.program.ops import COMMUTATIVE, KIND

LARGEST = 20_000
"""Characters of one pattern; longer ones are a mistake."""

DEEPEST = 60
"""Calls inside each other."""


class Kind(NamedTuple):
    """`:name(argument)` behind a variable."""

    name: str
    argument: str = ""


@dataclass(frozen=True)
class Any:
    """`_`"""

    heads = None


@dataclass(frozen=True)
class Number:
    value: float
    heads = frozenset({"const"})


@dataclass(frozen=True)
class Variable:
    name: str
    kind: Kind | None = None
    inner: Pattern | None = None

    @cached_property
    def heads(self) -> frozenset[str] | None:
        return self.inner.heads if self.inner else None


@dataclass(frozen=True)
class Call:
    """An op on operands. `either_order`: two operands that may be swapped."""

    ops: tuple[str, ...]
    arguments: tuple[Pattern, ...]

    @cached_property
    def heads(self) -> frozenset[str] | None:
        return frozenset(self.ops)

    @cached_property
    def either_order(self) -> bool:
        return len(self.arguments) == 2 and any(op in COMMUTATIVE for op in self.ops)


@dataclass(frozen=True)
class Choice:
    """Spellings of one thing, tried in order."""

    options: tuple[Pattern, ...]

    @cached_property
    def heads(self) -> frozenset[str] | None:
        found = [p.heads for p in self.options]
        return None if None in found else frozenset().union(*found)


Pattern = Any | Number | Variable | Call | Choice
"""`heads`: the ops a value must have one of to match; None: any."""


class Definition(NamedTuple):
    """A named pattern: parameters are written `$x` in the spellings."""

    parameters: tuple[str, ...]
    spellings: tuple[str, ...]


TOKEN = re.compile(r"\s*(?:(?P<punctuation>[()=])|(?P<variable>\?[a-z_][a-z0-9_]*)(?::(?P<kind>[a-z_0-9]+)(?:\((?P<argument>[^()]*)\))?)?"
                   r"|(?P<parameter>\$[a-z_]+)|(?P<number>-?\d+(?:\.\d+)?(?:e-?\d+)?)(?=[\s()]|$)|(?P<word>[a-z_][a-z0-9_|-]*))")


def parse(text: str, definitions: dict[str, Definition] | None = None, *, where: str = "") -> Pattern:
    """The pattern in `text`. Raises GraphdiffError for what is no pattern, an op nobody knows or a wrong argument count."""
    return _Parser(text, definitions or {}, {}, where, ()).whole()


class _Parser:
    def __init__(self, text: str, definitions: dict[str, Definition], bound: dict[str, Pattern], where: str,
                 open_names: tuple[str, ...]) -> None:
        if len(text) > LARGEST:
            raise GraphdiffError(f"a pattern of {len(text)} characters", where=where, fix=f"at most {LARGEST}")
        self.text, self.definitions, self.bound, self.where, self.open_names = text, definitions, bound, where, open_names
        self.tokens = self._tokens(text)
        self.place = self.depth = 0

    def whole(self) -> Pattern:
        found = self._pattern()
        if self.place != len(self.tokens):
            raise self._error("something follows the pattern's end")
        return found

    def _tokens(self, text: str) -> list[re.Match]:
        tokens, place = [], 0
        text = text.rstrip()
        while place < len(text):
            match = TOKEN.match(text, place)
            if match is None:
                raise self._error(f"{text[place:place + 12].strip()!r} is no part of a pattern")
            tokens.append(match)
            place = match.end()
        return tokens

    def _error(self, what: str) -> GraphdiffError:
        return GraphdiffError(f"pattern {' '.join(self.text.split())[:80]!r}: {what}", where=self.where,
                              fix="see graphdiff/rules/pattern.py")

    def _peek(self, punctuation: str) -> bool:
        return self.place < len(self.tokens) and self.tokens[self.place]["punctuation"] == punctuation

    def _take(self) -> re.Match:
        if self.place >= len(self.tokens):
            raise self._error("it ends too early")
        self.place += 1
        return self.tokens[self.place - 1]

    def _pattern(self) -> Pattern:
        token = self._take()
        if token["punctuation"] == "(":
            return self._call()
        if token["variable"]:
            kind = Kind(token["kind"], token["argument"] or "") if token["kind"] else None
            inner = None
            if self._peek("="):
                self.place += 1
                inner = self._pattern()
            return Variable(token["variable"][1:], kind, inner)
        if token["parameter"]:
            if token["parameter"][1:] not in self.bound:
                raise self._error(f"{token['parameter']} is not a parameter here")
            return self.bound[token["parameter"][1:]]
        if token["number"]:
            return Number(float(token["number"]))
        if token["word"] == "_":
            return Any()
        raise self._error(f"unexpected {token[0].strip()!r}")

    def _call(self) -> Pattern:
        name = self._take()["word"]
        if not name:
            raise self._error("an op's name must follow '('")
        self.depth += 1
        if self.depth > DEEPEST:
            raise self._error(f"more than {DEEPEST} calls inside each other")
        arguments = []
        while not self._peek(")"):
            arguments.append(self._pattern())
        self.place += 1
        self.depth -= 1
        if name in self.definitions:
            return self._expand(name, arguments)
        ops = tuple(name.split("|"))
        if unknown := [op for op in ops if op not in KIND]:
            raise self._error(f"no op and no named pattern {unknown[0]!r}")
        return Call(ops, tuple(arguments))

    def _expand(self, name: str, arguments: list[Pattern]) -> Pattern:
        definition = self.definitions[name]
        if name in self.open_names:
            raise self._error(f"{name} is defined by itself")
        if len(arguments) != len(definition.parameters):
            raise self._error(f"{name} takes {len(definition.parameters)} patterns, not {len(arguments)}")
        bound = dict(zip(definition.parameters, arguments))
        options = [_Parser(s, self.definitions, bound, self.where, (*self.open_names, name)).whole() for s in definition.spellings]
        return options[0] if len(options) == 1 else Choice(tuple(options))


def names(pattern: Pattern) -> set[str]:
    """Names of all variables in a pattern."""
    if isinstance(pattern, Variable):
        return {pattern.name} | (names(pattern.inner) if pattern.inner else set())
    parts = pattern.arguments if isinstance(pattern, Call) else pattern.options if isinstance(pattern, Choice) else ()
    return set().union(*map(names, parts)) if parts else set()


def depth_of(pattern: Pattern, name: str, depth: int = 0) -> int:
    """The greatest number of ops between the pattern's root and a variable; -1 if it is not there."""
    if isinstance(pattern, Variable):
        inner = depth_of(pattern.inner, name, depth) if pattern.inner else -1
        return max(inner, depth if pattern.name == name else -1)
    if isinstance(pattern, Call):
        return max((depth_of(p, name, depth + 1) for p in pattern.arguments), default=-1)
    if isinstance(pattern, Choice):
        return max(depth_of(p, name, depth) for p in pattern.options)
    return -1
