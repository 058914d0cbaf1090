"""`graphdiff capture ...`: one side on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphdiff.cli.compare import Attention, Autocast
from graphdiff.cli.options import Bucket, CaptureFile, EngineMode, GraphPartition, Inductor, KeepWeights, Layers, Mode, Seed, Target, Tokens, examples

commands = typer.Typer(
    no_args_is_help=False,
    rich_markup_mode=None,
    help="Record what one side runs: its ops, its kernels, where it rounds, and hashes of its values. Nothing "
    "in a capture is ever executed, and captures are compared without torch or the engine.",
)


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.add_typer(commands, name="capture", short_help="Record one side as a file.")


@commands.command(
    epilog=examples(
        "graphdiff capture vllm qwen3-tiny -o engine.cap",
        "graphdiff capture vllm ./checkpoint --bucket 1 -o decode.cap",
        "graphdiff capture vllm qwen3-tiny --target native -o cpu.cap",
    )
)
def vllm(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A checkpoint directory, a config.json, or a name such as qwen3-tiny."),
    ],
    output: CaptureFile,
    target: Target = "cuda:90",
    mode: Mode = EngineMode.compiled,
    layers: Layers = None,
    seed: Seed = 0,
    tokens: Tokens = 8,
    bucket: Bucket = None,
    combo_kernels: Annotated[bool, typer.Option(help="Let Inductor combine kernels, as vLLM does on CUDA.")] = True,
    graph_partition: GraphPartition = False,
    inductor: Inductor = None,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="Run the engine core in this process (for debuggers).")
    ] = False,
    keep_weights: KeepWeights = False,
) -> None:
    """Run vLLM and record what it compiled.

    Takes a minute or two and about 2 GB for a tiny model; needs the extra 'vllm'. Exit status: 0 recorded, 2 could not
    run or nothing was compiled.
    """
    from graphdiff.cli.effect import refuse_without_effect

    native = "is for the engine's CUDA code, and the target is native" if target == "native" else ""
    bucketed = "has no effect with --bucket: the probe has as many tokens" if bucket else ""
    refuse_without_effect(context, {"tokens": bucketed, "combo_kernels": native})

    from graphdiff import pipeline
    from graphdiff.cli.progress import progress
    from graphdiff.cli.streams import stdout_for_answer

    with stdout_for_answer(), progress("starting vLLM") as say:
        pipeline.capture_vllm(
            model,
            output,
            target=target,
            mode=mode.value,
            layers=layers,
            seed=seed,
            tokens=tokens,
            combo_kernels=combo_kernels,
            graph_partition=graph_partition,
            inductor=inductor or (),
            bucket=bucket,
            in_process=in_process,
            keep_weights=keep_weights,
            progress=say,
        )
    typer.echo(f"wrote {output}")


@commands.command(
    epilog=examples(
        "graphdiff capture transformers qwen3-tiny -o trainer.cap",
        "graphdiff capture transformers ./checkpoint --autocast bfloat16 -o trainer.cap",
        "graphdiff capture transformers qwen3-tiny --compile --target cuda:90 -o compiled.cap",
    )
)
def transformers(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A checkpoint directory, a config.json, or a name such as qwen3-tiny."),
    ],
    output: CaptureFile,
    layers: Layers = None,
    seed: Seed = 0,
    tokens: Tokens = 8,
    attn: Annotated[
        Attention | None,
        typer.Option(help="Attention implementation. Default: sdpa, as transformers; eager with --compile for CUDA."),
    ] = None,
    autocast: Annotated[Autocast | None, typer.Option(help="Run under autocast, over FP32 weights.")] = None,
    checkpointing: Annotated[
        bool, typer.Option("--checkpointing", help="Run with activation checkpointing, as training does.")
    ] = False,
    compile: Annotated[
        bool, typer.Option("--compile", help="Record what torch.compile makes of the forward, with gradients.")
    ] = False,
    backward: Annotated[
        bool, typer.Option("--backward", help="With --compile: the backward too.")
    ] = False,
    target: Annotated[
        str,
        typer.Option(
            metavar="TARGET", help="With --compile: native (this machine), or cuda:80, cuda:90, cuda:100 (no GPU needed)."
        ),
    ] = "native",
    inductor: Inductor = None,
    keep_weights: KeepWeights = False,
) -> None:
    """Run the training forward of transformers and record it.

    Seconds for a tiny model; needs the extra 'transformers'. Exit status: 0 recorded, 2 could not run.
    """
    from graphdiff.cli.effect import refuse_without_effect

    refuse_without_effect(context, {"target": "" if compile else "is for compiled code, and this is eager (--compile)"})

    from graphdiff import pipeline
    from graphdiff.cli.progress import progress
    from graphdiff.cli.streams import stdout_for_answer

    with stdout_for_answer(), progress("running the forward") as say:
        pipeline.capture_transformers(
            model,
            output,
            layers=layers,
            seed=seed,
            tokens=tokens,
            attn=attn.value if attn else None,
            autocast=autocast.value if autocast else None,
            checkpointing=checkpointing,
            compile=compile,
            backward=backward,
            target=target,
            inductor=inductor or (),
            keep_weights=keep_weights,
            progress=say,
        )
    typer.echo(f"wrote {output}")


@commands.command(
    epilog=examples(
        "graphdiff capture function mine.py:norm --inputs mine.py:inputs -o norm.cap",
        "graphdiff capture function mine.py:norm --inputs mine.py:inputs --compile -o fused.cap",
    )
)
def function(
    context: typer.Context,
    spec: Annotated[str, typer.Argument(metavar="FILE.py:FN", help="The function: torch tensors in, tensors out.")],
    inputs: Annotated[str, typer.Option(metavar="FILE.py:FN", help="FN(seed) returns its arguments.")],
    output: CaptureFile,
    compile: Annotated[bool, typer.Option("--compile", help="Record what Inductor makes of it.")] = False,
    training: Annotated[
        bool, typer.Option("--training", help="With --compile: compiled with gradients; the forward is recorded.")
    ] = False,
    backward: Annotated[
        bool, typer.Option("--backward", help="With --compile: as --training, and the backward too.")
    ] = False,
    target: Target = "cuda:90",
    inductor: Inductor = None,
    seed: Seed = 0,
) -> None:
    """Run any torch function and record it. It runs the two files that it is given.

    Needs the extra 'torch'; --compile needs 'vllm' too, for its Triton. Exit status: 0 recorded, 2 could not run.
    """
    from graphdiff.cli.effect import refuse_without_effect

    refuse_without_effect(context, {"target": "" if compile else "is for compiled code, and this is eager (--compile)"})

    from graphdiff import pipeline
    from graphdiff.cli.progress import progress
    from graphdiff.cli.streams import stdout_for_answer

    with stdout_for_answer(), progress("running the function") as say:
        pipeline.capture_function(
            spec,
            inputs,
            output,
            compile=compile,
            target=target,
            inductor=inductor or (),
            seed=seed,
            training=training,
            backward=backward,
            progress=say,
        )
    typer.echo(f"wrote {output}")


@commands.command(
    short_help="Record one graph of what another machine dumped.",
    epilog=examples(
        "TORCH_TRACE=traces python train.py && graphdiff capture dumps traces -o step.cap",
        "graphdiff capture dumps traces --graph 2 -o step.cap",
    )
)
def dumps(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="A folder (or file) that TORCH_TRACE, TORCH_LOGS_OUT or a compile cache of Inductor or vLLM wrote.",
        ),
    ],
    output: CaptureFile,
    graph: Annotated[
        int | None, typer.Option("--graph", min=1, metavar="N", help="Which graph, where there are several.")
    ] = None,
    tokens: Annotated[
        int, typer.Option(min=1, max=4096, metavar="N", help="What symbolic sizes are taken as.")
    ] = 8,
    seed: Seed = 0,
    any_torch: Annotated[
        bool, typer.Option("--any-torch", help="Read dumps of any version of torch, known to be read right or not.")
    ] = False,
) -> None:
    """Record one graph from what a machine wrote while it compiled. Needs no torch, no engine, and runs nothing.

    A dump holds no weights: the inputs are stand-ins, the same for the same places, sizes and seed. Exit status: 0
    recorded, 2 nothing to record, damaged, or several graphs and no --graph.
    """
    from graphdiff import pipeline
    from graphdiff.cli.progress import progress
    from graphdiff.cli.streams import stdout_for_answer

    with stdout_for_answer(), progress("reading the dump") as say:
        pipeline.capture_dumps(
            folder, output, graph=graph, tokens=tokens, seed=seed, any_torch=any_torch, progress=say
        )
    typer.echo(f"wrote {output}")
