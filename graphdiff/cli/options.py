"""Options that several commands share, so that they mean and say the same everywhere."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer



def examples(*lines: str) -> str:
    """An epilog that keeps its lines."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


Layers = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Layers of a model with made-up weights, 2 by default and 1024 at most; a checkpoint keeps all of its own.",
    ),
]
Tokens = Annotated[int, typer.Option(min=1, max=4096, metavar="N", help="Tokens of the probe prompt.")]
Seed = Annotated[
    int, typer.Option(min=0, metavar="N", help="Seed of synthetic weights, inputs and probe, below 2**63; both sides need the same.")
]


class EngineMode(StrEnum):
    """How vLLM runs on this machine."""

    compiled = "compiled"
    vllm_compile = "vllm_compile"
    eager = "eager"


Target = Annotated[
    str,
    typer.Option(
        metavar="TARGET",
        help="What inference's kernels are for: cuda:80, cuda:90 or cuda:100 (compute capability 8.0, 9.0, 10.0; no GPU "
        "needed), or native (what runs here).",
    ),
]
Mode = Annotated[
    EngineMode,
    typer.Option(help="With --target native: the engine compiled, as it runs there by default (one graph); in VLLM_COMPILE (pieces "
        "between attentions, as on a GPU); or with enforce_eager."),
]
CaptureFile = Annotated[
    str,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="The capture file to write. It may replace an older capture, and no other file.",
    ),
]
KeepWeights = Annotated[
    bool,
    typer.Option(
        "--keep-weights",
        help="Keep the weights in the capture, so that its regions can be run from it. Makes it large.",
    ),
]
Bucket = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=4096,
        metavar="N",
        help="Let the engine compile for exactly N tokens (1: decode) and record that schedule; the probe then has N "
        "tokens. Default: the schedule for any number of tokens.",
    ),
]
GraphPartition = Annotated[
    bool,
    typer.Option(
        "--graph-partition/--no-graph-partition",
        help="Compile with use_inductor_graph_partition: the whole model as one graph, attention inside, where the "
        "residual between layers is never rounded. Off, as by default in vLLM: a piece per layer.",
    ),
]
Inductor = Annotated[
    list[str] | None,
    typer.Option(
        "--inductor",
        metavar="NAME=VALUE",
        help="Of compiled code: an option of torch._inductor.config, such as emulate_precision_casts=true. May be given "
        "several times; the capture and reports say it.",
    ),
]
Ptx = Annotated[
    bool,
    typer.Option(
        "--ptx",
        help="Compile inference's Triton kernels to PTX and SASS with no GPU and check that every rounding is there. "
        "Only kernels that pass a check of their text are compiled, in a process of their own.",
    ),
]
