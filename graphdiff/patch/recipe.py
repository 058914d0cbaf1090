"""Recipes: where to cut into a model family of transformers. Data of `rules/recipes/`; unknown fields are errors."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import msgspec

from graphdiff.errors import GraphdiffError
from graphdiff.rules.location import rules_directory


class Edit(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """One change of a function's source: of a statement, of its signature, or of an argument of a call.

    occurrence: which one, where the statement stands several times (1-based); 0: it must stand exactly once.
    """

    replace: str
    statement: str = ""
    signature: str = ""
    call: str = ""
    argument: str = ""
    occurrence: int = 0


class Function(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """A forward of transformers, edited (or written anew: `whole`), and the modules that get it, below the base model."""

    function: str
    modules: list[str]
    name: str
    edits: list[Edit] = []
    whole: str = ""
    without_decorators: list[str] = []


class Variant(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """One way a family spells a part. The first whose edits all fit the installed source is taken.

    replaces: functions the part no longer calls, whose meaning the ops restate. relies: functions elsewhere in
    transformers whose behaviour the part needs. intact: modules it reads the weights of without calling them.
    """

    name: str
    ops: list[str]
    functions: list[Function]
    replaces: list[str] = []
    relies: list[str] = []
    intact: dict[str, str] = {}


class Value(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """A value that transformers rounds: the expression that makes it, and the modules it is made in.

    read_by: if given, the flag speaks of the reads by these expressions only, and all of them must agree.
    between_layers: the last layer has no such read.
    """

    flag: str
    modules: list[str]
    function: str
    expression: str
    occurrence: int = 0
    read_by: list[str] = []
    between_layers: bool = False


class Part(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """One switch of `apply`. requires: config entries and the values they may have."""

    name: str
    title: str
    why: str
    rules: list[str]
    values: list[Value]
    variants: list[Variant]
    requires: dict[str, list[str]] = {}


class Recipe(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """models: model_type of transformers -> class prefix, written `$` in the recipe. config: entries a patch is for."""

    id: str
    title: str
    description: str
    references: list[str]
    config: list[str]
    models: dict[str, str]
    parts: list[Part]


@cache
def load_recipes(directory: Path | None = None) -> tuple[Recipe, ...]:
    """Every recipe. Raises GraphdiffError for a file that is none."""
    found = []
    for path in sorted((directory or rules_directory() / "recipes").glob("*.toml")):
        try:
            recipe = msgspec.convert(tomllib.loads(path.read_text("utf-8")), Recipe)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise GraphdiffError(f"not a recipe: {error}", where=str(path), fix="docs/patch.md says what one holds") from error
        if recipe.id != path.stem:
            raise GraphdiffError(f"recipe {recipe.id!r} is not named as its file", where=str(path))
        found.append(recipe)
    return tuple(found)


def recipe_for(model_type: str) -> Recipe | None:
    """The recipe that serves this model type, if there is one."""
    return next((r for r in load_recipes() if model_type in r.models), None)
