"""`graphdiff verify`: the proof of a patch."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from graphdiff.cli.compare import Attention
from graphdiff.cli.options import Layers, Seed
from graphdiff.errors import GraphdiffError


class VerifyFormat(StrEnum):
    """How the result is written."""

    terminal = "terminal"
    json = "json"


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(verify)


def verify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What `graphdiff patch` wrote. Its code is run.")],
    model: Annotated[
        str,
        typer.Option(metavar="MODEL", help="A checkpoint directory, a config.json, or a name such as qwen3-tiny."),
    ],
    inference: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The engine's capture, made with --keep-weights to compare final bits. Default: run the engine again.",
        ),
    ] = None,
    parts: Annotated[
        str | None, typer.Option(metavar="LIST", help="Only these parts, such as rope,swiglu. Default: all it has.")
    ] = None,
    layers: Layers = None,
    seed: Seed = 0,
    attn: Annotated[Attention, typer.Option(help="Attention implementation of the trainer.")] = Attention.sdpa,
    format: Annotated[VerifyFormat, typer.Option(help="How to write the result.")] = VerifyFormat.terminal,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where to write it. Default: stdout.")
    ] = None,
) -> None:
    """Prove a patch: apply it, capture the training forward again, compare with the engine again.

    Proved are: no moved rounding is left in its parts and none appeared elsewhere; the final hidden states are the
    engine program's, bit for bit; so are the bits of each kernel, in Triton's interpreter; gradients against float64
    and under both kinds of checkpointing; and that taking it off leaves model and transformers as they were.

    Without --inference it runs the engine: a minute or two and about 2 GB. Exit status: 0 everything proved or not
    tried (and said so), 1 a check failed, 2 could not run, or the patch refuses this model.
    """
    from graphdiff import pipeline
    from graphdiff.cli.progress import progress
    from graphdiff.cli.streams import stdout_for_answer
    from graphdiff.verify.model import as_json, as_text

    with stdout_for_answer(), progress("verifying") as say:
        found = pipeline.verify(
            folder,
            model,
            inference=inference,
            layers=layers,
            seed=seed,
            parts=[p.strip() for p in parts.split(",")] if parts else None,
            attn=attn.value,
            progress=say,
        )
    text = as_json(found).decode() if format is VerifyFormat.json else as_text(found)
    if output is None:
        typer.echo(text, nl=False)
    else:
        try:
            output.write_text(text, "utf-8")
        except OSError as error:
            raise GraphdiffError(f"cannot write: {error.strerror}", where=str(output)) from error
    raise typer.Exit(found.exit_status)
