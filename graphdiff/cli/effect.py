"""Options that would have no effect are refused: whoever gives one believes that it does something."""

from __future__ import annotations

from collections.abc import Mapping

import typer

from graphdiff.errors import GraphdiffError


def given(context: typer.Context, name: str) -> bool:
    """True if the option stands on the command line; its default never counts."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def refuse_without_effect(context: typer.Context, reasons: Mapping[str, str]) -> None:
    """Raises GraphdiffError for the first option that was given although there is a reason why it does nothing.

    reasons: parameter -> what is so, as in `is for vllm: operands, and both operands are files`.
    """
    for name, reason in reasons.items():
        if reason and given(context, name):
            raise GraphdiffError(f"--{name.replace('_', '-')} {reason}", fix="leave it out")


KINDS = {"file": "file", "vllm": "vllm: operand", "transformers": "transformers: operand", "function": "function"}


def for_operands(kinds: tuple[str, str], *wanted: str) -> str:
    """The reason why an option for some kinds of operands does nothing here, or ""."""
    if set(kinds) & set(wanted):
        return ""
    one, two = kinds
    these = f"both operands are {KINDS[one]}s" if one == two else f"the operands are a {KINDS[one]} and a {KINDS[two]}"
    names = [f"{k}: operands" if k in ("vllm", "transformers") else f"{KINDS[k]}s" for k in wanted]
    return f"is for {' and '.join([', '.join(names[:-1]), names[-1]] if len(names) > 1 else names)}, and {these}"
