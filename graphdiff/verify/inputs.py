"""Regions on numbers of a kind: the same inputs for the engine's program and for the emitted kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdiff.emit import EmittedRegion, RegionIR
from graphdiff.program import Evaluation, Options, Program
from graphdiff.program.dtypes import FORMATS, round_to
from graphdiff.program.ops import Arithmetic

NUMBERS = ("random", "ties", "subnormal", "special", "large", "zeros")


def numbers(kind: str, n: int, dtype: str, rng: np.random.Generator) -> np.ndarray:
    """float32 numbers that `dtype` can represent."""
    x = rng.standard_normal(n).astype(np.float32)
    f = FORMATS[dtype]
    if kind == "random":
        x *= np.exp2(rng.integers(-6, 7, n)).astype(np.float32)
    elif kind == "ties":
        # Short odd mantissas at neighbouring exponents: sums and products end halfway between two 16-bit numbers.
        odd = 2 * rng.integers(2 ** (f.precision - 2), 2 ** (f.precision - 1), n) + 1
        x = (odd * np.exp2(rng.integers(-f.precision - 1, -f.precision + 2, n)) * rng.choice([-1, 1], n)).astype(np.float32)
    elif kind == "subnormal":
        x = (rng.integers(-200, 201, n) * np.ldexp(1.0, f.quantum)).astype(np.float32)
    elif kind == "special":
        some = rng.random(n) < 0.02
        x = np.where(some, rng.choice(np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], np.float32), n), x)
    elif kind == "large":
        x *= np.float32(f.largest / 8)
    elif kind == "zeros":
        x = np.where(rng.random(n) < 0.5, np.float32(0), np.float32(-0.0))
    return round_to(x, dtype)


def tensors_of(region: RegionIR, program: Program, kind: str, seed: int = 0) -> tuple[dict[str, Any], dict[int, np.ndarray]]:
    """(tensor by name, numbers by node of the program): what enters the region, the same on both."""
    import torch

    rng = np.random.default_rng(seed)
    pins: dict[int, np.ndarray] = {}
    found = {}
    for part in region.parts:
        for i in part.inputs:
            node, first = i.source
            if node not in pins:
                own = kind if i.role == "row" else "random"
                pins[node] = numbers(own, program.nodes[node].size, i.dtype, rng)
            tokens, step = i.at
            heads = np.arange(part.heads if i.per_head else 1) * step
            index = first + np.array(tokens)[:, None, None] + heads[None, :, None] + np.arange(i.width)
            x = torch.from_numpy(pins[node][index]).to(getattr(torch, i.dtype))
            found[part.bind[i.name]] = x[0, 0] if i.role == "vector" else x[None] if i.per_head else x[:, 0][None]
    return found, pins


def arguments_of(emitted: EmittedRegion, tensors: dict[str, Any]) -> tuple[Any, ...]:
    import torch

    first = next(iter(tensors.values()))
    return tuple(tensors[t.name] if t.shape != "carry" else torch.empty((), dtype=first.dtype).expand(first.shape)
                 for t in emitted.signature.inputs)


def by_program(region: RegionIR, program: Program, pins: dict[int, np.ndarray]) -> list[np.ndarray]:
    """What the engine's program stores, with sums as a kernel takes them: over a power of two of lanes."""
    evaluation = Evaluation(program, program.data, Options(pins=pins, arithmetic=Arithmetic(sum=_padded_sum)))
    return [evaluation.flat(o.node) for p in region.parts for o in p.outputs]


def _padded_sum(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    x = np.moveaxis(x, axes[0], -1)
    full = 1 << (x.shape[-1] - 1).bit_length()
    return np.concatenate([x, np.zeros((*x.shape[:-1], full - x.shape[-1]), x.dtype)], -1).sum(-1, dtype=x.dtype)
