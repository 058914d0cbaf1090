"""Rules as data: the shape of a rule file, and loading them. Unknown fields, kinds and names are errors."""

from __future__ import annotations

import re
import string
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from graphdiff.errors import GraphdiffError
from graphdiff.rules.kinds import KINDS
from graphdiff.rules.location import rules_directory
from graphdiff.rules.pattern import Call, Choice, Definition, Pattern, Variable, depth_of, names, parse

RegionKind = Literal["rope", "qk-norm-rope", "rms-norm", "residual-rms-norm", "layer-norm", "gated-activation", "softmax", "logits",
                     "router", "quantisation", "embedding-scale", "bias-add", "lora", "generic"]

SHARED = "patterns.toml"


class Value(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """One value a rule names.

    `pattern` is matched around a moved value; `value` says which of its variables that moved value must be (empty: the
    pattern's own node) and `root` which one stands for the whole instance. `name` may hold `{x}`: a short name of x.
    """

    role: str
    name: str
    pattern: str
    value: str = ""
    root: str = ""


class Fires(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """A pair of functions in which the rule names exactly these values."""

    example: str
    values: list[str]


class Silent(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """A pair of functions in which the rule names nothing, and why."""

    example: str
    why: str


class RuleFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """A rule as it is written. Higher priority is asked first.

    needs: lists of roles; an instance counts only if it has a moved value from each list.
    identity: variables that two roots of one instance have in common (the halves of a rotation).
    why, advice: why the two stacks differ there, and what to do about it.
    takes_over: names an instance of another rule, if all moved values of it are also its own; their names stay.
    """

    id: str
    title: str
    kind: RegionKind
    priority: int
    description: str
    why: str = ""
    advice: str = ""
    references: list[str]
    values: list[Value]
    fires: list[Fires]
    silent: list[Silent]
    needs: list[list[str]] = []
    identity: list[str] = []
    takes_over: bool = False


class NamedPattern(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """An entry of `patterns.toml`."""

    parameters: list[str] = []
    spellings: list[str]
    about: str = ""


@dataclass(frozen=True, eq=False)
class Role:
    """A value with its pattern parsed: `depth` ops at most lie between the value and the pattern's root."""

    value: Value
    pattern: Pattern
    depth: int
    order: int


@dataclass(frozen=True, eq=False)
class Rule:
    data: RuleFile
    roles: tuple[Role, ...]
    path: Path

    @property
    def id(self) -> str:
        return self.data.id


@cache
def load_rules(directory: Path | None = None) -> tuple[Rule, ...]:
    """Every rule, highest priority first. Raises GraphdiffError for a file that is no rule."""
    directory = directory or rules_directory()
    definitions = _definitions(directory / SHARED)
    rules = [_rule(path, definitions) for path in sorted(directory.glob("*.toml")) if path.name != SHARED]
    return tuple(sorted(rules, key=lambda r: (-r.data.priority, r.id)))


def _read(path: Path, kind: Any) -> Any:
    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), kind)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise GraphdiffError(f"not a rule file: {error}", where=str(path), fix="docs/rules/README.md says what one holds") from error


def _definitions(path: Path) -> dict[str, Definition]:
    if not path.is_file():
        return {}
    entries: dict[str, NamedPattern] = _read(path, dict[str, NamedPattern])
    return {name: Definition(tuple(e.parameters), tuple(e.spellings)) for name, e in entries.items()}


def _rule(path: Path, definitions: dict[str, Definition]) -> Rule:
    data: RuleFile = _read(path, RuleFile)

    def wrong(what: str, fix: str = "docs/rules/README.md says what a rule holds") -> GraphdiffError:
        return GraphdiffError(f"rule {data.id!r}: {what}", where=str(path), fix=fix)

    if data.id != path.stem or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", data.id):
        raise wrong("its id is not the name of its file, in kebab-case")
    if not data.fires or not data.silent:
        raise wrong("it needs an example that fires it and one that does not fire it")
    if not data.references:
        raise wrong("it has no reference")
    roles, parsed = [], {}
    for order, value in enumerate(data.values):
        if value.pattern not in parsed:  # one object per text: what it matches is remembered by object
            parsed[value.pattern] = parse(value.pattern, definitions, where=str(path))
        pattern = parsed[value.pattern]
        known = names(pattern)
        used = {value.value, value.root, *(f for _, f, _, _ in string.Formatter().parse(value.name) if f)} - {""}
        if unknown := sorted(used - known) + sorted(_kinds(pattern) - set(KINDS)):
            raise wrong(f"value {value.role!r} uses {unknown[0]!r}, which its pattern does not have")
        depth = depth_of(pattern, value.value) if value.value else 0
        roles.append(Role(value, pattern, depth, order))
    if unknown := {r for group in data.needs for r in group} - {v.role for v in data.values}:
        raise wrong(f"needs {sorted(unknown)[0]!r}, which is no role of it")
    for example in (*data.fires, *data.silent):
        if not (path.parent / example.example).is_file():
            raise wrong(f"no example {example.example}")
    return Rule(data, tuple(roles), path)


def _kinds(p: Pattern) -> set[str]:
    if isinstance(p, Variable):
        return ({p.kind.name} if p.kind else set()) | (_kinds(p.inner) if p.inner else set())
    parts = p.arguments if isinstance(p, Call) else p.options if isinstance(p, Choice) else ()
    return set().union(*map(_kinds, parts)) if parts else set()


def region_kinds() -> tuple[str, ...]:
    return get_args(RegionKind)
