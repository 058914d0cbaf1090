"""`graphdiff patch`: from a comparison to a package that a trainer vendors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphdiff.cli.options import examples
from graphdiff.errors import GraphdiffError


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(epilog=EXAMPLES, short_help="Write a package that makes training round where inference rounds.")(patch)


EXAMPLES = examples(
    "graphdiff patch engine.cap trainer.cap -o qwen3_rounding",
    "graphdiff patch report.json engine.cap trainer.cap -o out/qwen3_rounding",
)


def patch(
    operands: Annotated[
        list[Path],
        typer.Argument(
            metavar="[REPORT.json] INFERENCE TRAINING",
            help="The two captures, and before them the report of their comparison, if it was kept.",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="The package to write; its name is the name that Python imports. A new or empty folder, or an older patch.",
        ),
    ],
) -> None:
    """Write a package that makes the training forward round where the engine rounds.

    It stands alone (torch and triton, no graphdiff), to be reviewed and vendored: apply(model) changes one model and
    gives a handle that takes the change back. Only values that the comparison found moved are aligned.

    Needs transformers, whose installed source is what the patch edits. Exit status: 0 written and nothing left out,
    1 written, but some moved values are not aligned by it, 2 could not run.
    """
    from graphdiff import pipeline
    from graphdiff.cli.progress import progress
    from graphdiff.cli.streams import stdout_for_answer

    report = operands[0] if operands[0].suffix == ".json" else None
    captures = operands[1:] if report else operands
    if len(captures) != 2:
        raise GraphdiffError(
            f"{len(captures)} captures given" + (" with the report" if report else ""),
            fix="give two capture files, inference first (a report alone does not hold what the patch fingerprints)",
        )
    with stdout_for_answer(), progress("reading captures") as say:
        plan, written = pipeline.patch(captures[0], captures[1], output, report=report, progress=say)
    typer.echo(f"wrote {output} ({len(written)} file{'s' if len(written) != 1 else ''})")
    for part in plan.parts:
        typer.echo(f"  {part.part.name}: {part.part.title}")
    for name, why in plan.absent.items():
        typer.echo(f"  no {name}: {why}")
    for left in plan.uncovered:
        typer.echo(f"  not aligned: {', '.join(left.values)} ({left.rule or 'unnamed'}): {left.reason}")
    if plan.parts:
        typer.echo(f"prove it: graphdiff verify {output} --model MODEL")
    raise typer.Exit(1 if plan.uncovered else 0)
