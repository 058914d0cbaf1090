"""`graphdiff verify`: the proof of a patch."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from graphdiff.cli.compare import Attention
from graphdiff.cli.options import Layers, Seed, examples
from graphdiff.errors import GraphdiffError


class VerifyFormat(StrEnum):
    """How the result is written."""

    terminal = "terminal"
    json = "json"


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(
        short_help="Prove a patch: apply it, capture again, compare again.",
        epilog=examples(
            "graphdiff verify qwen3_rounding --model qwen3-tiny",
            "graphdiff verify qwen3_rounding --model ./checkpoint --inference engine.cap -o proof.json",
        ),
    )(verify)


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
    format: Annotated[
        VerifyFormat | None,
        typer.Option(help="How to write the result. Default: json for an --output FILE.json, else terminal."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="A file to write instead of printing. Default, and -: stdout."
        ),
    ] = None,
) -> None:
    """Prove a patch: apply it, capture the training forward again, compare with the engine again.

    Proved are: no moved rounding is left in its parts and none appeared elsewhere; the final hidden states are the
    engine program's, bit for bit; so are the bits of each kernel, in Triton's interpreter; gradients against float64
    and under both kinds of checkpointing; and that taking it off leaves model and transformers as they were.

    Without --inference it runs the engine: a minute or two and about 2 GB. Exit status: 0 everything proved or not
    tried (and said so), 1 a check failed, 2 could not run, or the patch refuses this model.
    """
    from graphdiff.paths import STDOUT, check_output_file, checkpoint_files, refuse_inputs
    from graphdiff.report import check_extension, chosen_formats, print_text, write_file

    chosen = format.value if format else chosen_formats(None, output)[0]
    if chosen not in list(VerifyFormat):
        raise GraphdiffError(f"verify writes no {chosen}", where=output or "", fix="name a .txt or .json file as --output")
    output = None if output == STDOUT else output
    if output is not None:  # before the engine starts: a wrong path must not cost two minutes
        check_output_file(output, "the result")
        check_extension(chosen, output)
        patch_files = [str(file) for pattern in ("*", "kernels/*") for file in folder.glob(pattern)]
        refuse_inputs(output, [*patch_files, *checkpoint_files(model), *([inference] if inference else [])])

    from graphdiff import pipeline
    from graphdiff.cli.progress import progress
    from graphdiff.cli.streams import say_written, stdout_for_answer
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
    text = as_json(found).decode() if chosen == "json" else as_text(found)
    if output is None:
        print_text(text, sys.stdout)
    else:
        write_file(Path(output), text)
        say_written([output])
    raise typer.Exit(found.exit_status)
