"""`graphdiff compare`: the main job."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from graphdiff.cli.options import Bucket, EngineMode, Layers, Mode, Ptx, Seed, Target, Tokens, examples


class FailOn(StrEnum):
    """Findings that give exit status 1."""

    moved = "moved"
    unmatched = "unmatched"
    never = "never"


class Attention(StrEnum):
    """The attention implementations of transformers that can be recorded."""

    eager = "eager"
    sdpa = "sdpa"


class Autocast(StrEnum):
    """Types that training may autocast to."""

    bfloat16 = "bfloat16"
    float16 = "float16"


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(
        epilog=examples(
            "graphdiff compare vllm:qwen3-tiny transformers:qwen3-tiny",
            "graphdiff compare engine.cap trainer.cap -o report.json",
            "graphdiff compare engine.cap trainer.cap --format terminal,json,html -o out",
            "graphdiff compare engine.cap trainer.cap --fail-on unmatched",
            "graphdiff compare mine.py:fused theirs.py:eager --inputs mine.py:inputs",
        )
    )(compare)


def compare(
    context: typer.Context,
    inference: Annotated[str, typer.Argument(metavar="INFERENCE", help="What generates.")],
    training: Annotated[str, typer.Argument(metavar="TRAINING", help="What computes the log-probs of the update.")],
    inputs: Annotated[
        str | None, typer.Option(metavar="FILE.py:FN", help="For functions: FN(seed) returns their arguments.")
    ] = None,
    seed: Seed = 0,
    target: Target = "cuda:90",
    mode: Mode = EngineMode.compiled,
    layers: Layers = None,
    tokens: Tokens = 8,
    bucket: Bucket = None,
    attn: Annotated[
        Attention | None, typer.Option(help="Attention of the transformers side. Default: sdpa, as transformers.")
    ] = None,
    autocast: Annotated[
        Autocast | None, typer.Option(help="Run the transformers side under autocast, over FP32 weights.")
    ] = None,
    ptx: Ptx = False,
    format: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="One or more of terminal,json,markdown,html, separated by commas. Default: what the extension of "
            "--output says (.txt, .json, .md, .html), else terminal.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR_OR_FILE",
            help="Where to write: a file (a name with an extension, one format), or a directory (a name without one, or "
            "several formats) that gets report.txt, report.json, report.md, report.html. Written files are named on "
            "stderr; with terminal among the formats that report is printed as well. Default, and -: only print.",
        ),
    ] = None,
    fail_on: Annotated[
        FailOn,
        typer.Option(
            help="What gives exit status 1: moved roundings, those or unmatched values, or nothing. "
            "The format never changes the status."
        ),
    ] = FailOn.moved,
) -> None:
    """Compare where INFERENCE and TRAINING round.

    An operand is a capture file, vllm:MODEL, transformers:MODEL, or FILE.py:FN with --inputs. MODEL is a checkpoint
    directory, or a config.json or shipped name such as qwen3-tiny, built with made-up weights. A vllm: operand runs
    the engine: a minute or two and about 2 GB. Two capture files need no engine, no torch and no weights.

    Differences are in ulp (units in the last place) of the rounded type.

    Exit status: 0 nothing found, 1 findings (see --fail-on), 2 could not run or nothing matched.
    """
    from graphdiff.cli.effect import for_operands, refuse_without_effect
    from graphdiff.paths import kind_of, operand_files, python_file
    from graphdiff.report import chosen_formats, conclude, plan, publish

    # Before the engine starts: a wrong option, format or path must not cost two minutes.
    kinds = kind_of(inference), kind_of(training)
    engine, trainer = for_operands(kinds, "vllm"), for_operands(kinds, "transformers")
    models = for_operands(kinds, "vllm", "transformers")
    without_effect = {
        "inputs": for_operands(kinds, "function"),
        "seed": for_operands(kinds, "vllm", "transformers", "function"),
        "layers": models,
        "tokens": models or ("has no effect with --bucket: the probe has as many tokens" if bucket else ""),
        "target": engine,
        "mode": engine,
        "bucket": engine,
        "attn": trainer,
        "autocast": trainer,
    }
    refuse_without_effect(context, without_effect)
    reads = [*operand_files(inference), *operand_files(training), *python_file(inputs)]
    where = plan(chosen_formats(format, output), output, reads)

    from graphdiff import pipeline
    from graphdiff.cli.progress import progress
    from graphdiff.cli.streams import say_written, stdout_for_answer

    options = pipeline.CompareOptions(
        target=target,
        mode=mode.value,
        layers=layers,
        tokens=tokens,
        bucket=bucket,
        attn=attn.value if attn else None,
        autocast=autocast.value if autocast else None,
        fail_on=fail_on.value,
        ptx=ptx,
    )
    with stdout_for_answer(), progress("comparing") as say:
        report = pipeline.compare(inference, training, inputs=inputs, seed=seed, options=options, progress=say)
    conclude(report, fail_on.value)
    say_written(publish(report, where))
    if report.exit_status == 2:
        from graphdiff.report.words import could_not_tell

        typer.echo(f"graphdiff: {could_not_tell(report)}", err=True)
    raise typer.Exit(report.exit_status)
