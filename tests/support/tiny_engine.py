"""The stored texts of a tiny Qwen3 engine capture with seeded random parameters."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from fixture_inputs import random_bits

from graphdiff.lower.inductor import EnginePieces, GraphNode, Parameter, Piece
from graphdiff.lower.inductor.pieces import integers

FOLDER = Path(__file__).parents[2] / "fixtures" / "inductor" / "qwen3-tiny"


def tiny_qwen3(variant: str, *, tokens: int = 8, seed: int = 0) -> EnginePieces:
    """variant: base, or combo (combo kernels, as CUDA engines compile)."""
    wiring = json.loads((FOLDER / "wiring.json").read_text())
    nodes = lambda listed: [GraphNode(**n) for n in listed]  # noqa: E731
    rng = np.random.default_rng(seed)
    parameters = {name: Parameter(random_bits(tuple(int(n) for n in shape), dtype, rng), dtype)
                  for name, (dtype, shape) in wiring["inputs"].items()}
    pieces = {p.name.split(".")[0]: Piece(p.read_text()) for p in sorted(FOLDER.glob(f"*.{variant}.py.txt"))}
    splitting = {name: nodes(listed) for name, listed in wiring["splitting"].items()}
    probe = {"l_input_ids_": integers(rng.integers(0, 512, tokens), "int32", dynamic=True),
             "l_positions_": integers(np.arange(tokens), "int64", dynamic=False)}
    return EnginePieces(nodes(wiring["top"]), splitting, pieces, parameters, probe, tokens)
