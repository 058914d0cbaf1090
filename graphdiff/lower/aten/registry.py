"""Tables of the eager recorder's rules: by ATen base name, which in-place and out variants share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphdiff.lower.aten.recorder import Recorder

Rule = Callable[["Recorder", Any, tuple, dict, Any], Any]


def registrar(rules: dict[str, Rule]) -> Callable[..., Callable[[Rule], Rule]]:
    """A decorator `rule(*names)` that enters a function into `rules`."""

    def rule(*names: str) -> Callable[[Rule], Rule]:
        def register(function: Rule) -> Rule:
            rules.update(dict.fromkeys(names, function))
            return function

        return register

    return rule
