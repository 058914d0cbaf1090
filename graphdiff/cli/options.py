"""Options that several commands share, so that they mean and say the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Layers = Annotated[
    int | None,
    typer.Option(
        min=1, help="Layers of the model to build. Default: all of a checkpoint on disk, 2 of a synthetic one."
    ),
]
Tokens = Annotated[int, typer.Option(min=1, max=4096, help="Tokens of the probe prompt.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of synthetic weights, inputs and probe; both sides need the same.")]
Target = Annotated[
    str,
    typer.Option(
        help="What inference's kernels are for: cuda:90 (compute capability 9.0; needs no GPU) or native (this machine)."
    ),
]
CaptureFile = Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The capture file to write.")]
KeepWeights = Annotated[
    bool, typer.Option("--keep-weights", help="Keep a synthetic checkpoint after the capture instead of removing it.")
]
