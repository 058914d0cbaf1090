"""The engine's own kernels, run by the repaired interpreter on the inputs of the regions that mirror them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
from kernel_bits import _launch
from triton_interpreter import Launch, run_launches

from graphdiff.emit import RegionIR
from graphdiff.lower.inductor import output_code
from graphdiff.lower.inductor.values import IntStorage, Tensor
from graphdiff.program.builder import MASK, SHIFT
from graphdiff.program.dtypes import decode, encode_bfloat16

LARGEST = 1 << 24
"""Elements of memory that a launch may bring along (an embedding table of a real vocabulary is more)."""


@dataclass
class Seen:
    """One launch: the kernel, its source, its arguments, and which element of which node each of their elements was
    before and after."""

    kernel: Any
    source: str
    arguments: list[Any]
    before: list[np.ndarray | None]
    after: list[np.ndarray | None]


def launches_of(run: Callable[[], Any]) -> tuple[Any, list[Seen]]:
    """(what run() gives, every launch it makes)."""
    seen: list[Seen] = []
    sources: dict[int, str] = {}
    real_parse, real_launch = output_code.parse_kernel, output_code.launch

    def parse(name, source, *rest):
        kernel = real_parse(name, source, *rest)
        sources[id(kernel)] = source
        return kernel

    def record(ctx, kernel, arguments):
        before = [_ids(a) for a in arguments]
        kept = [Tensor(IntStorage.of(a.storage.values.copy(), a.dtype, dynamic=False), a.shape, a.strides, a.offset)
                if isinstance(a, Tensor) and isinstance(a.storage, IntStorage) else a for a in arguments]
        real_launch(ctx, kernel, arguments)
        seen.append(Seen(kernel, sources[id(kernel)], kept, before, [_ids(a) for a in arguments]))

    with mock.patch.object(output_code, "parse_kernel", parse), mock.patch.object(output_code, "launch", record):
        return run(), seen


def _ids(argument: Any) -> np.ndarray | None:
    if not isinstance(argument, Tensor) or isinstance(argument.storage, IntStorage) or argument.storage.size > LARGEST:
        return None
    storage = argument.storage
    return (np.arange(storage.size, dtype=np.int64) + (storage.node << SHIFT)) if storage._ids is None and storage.node >= 0 else storage.ids.copy()


def by_engine(program: Any, cases: list[tuple[RegionIR, dict[int, np.ndarray]]], seen: list[Seen]) -> list[list[np.ndarray] | None]:
    """For each region, the numbers its outputs have after the engine's kernel ran on the pinned inputs; None where the
    kernel's memory is too large. A region that several kernels compute is run kernel by kernel."""
    wanted, launches = [], []
    for region, pins in cases:
        own = [s for s in seen if any(i is not None and np.isin(_outputs(region), i >> SHIFT).any() for i in s.after)
               and not any(i is not None and np.isin(_outputs(region), i >> SHIFT).any() for i in s.before)]
        ready = [_memory(program, s, pins) for s in own]
        if any(m is None for m in ready):
            wanted.append(None)
            continue
        wanted.append((region, len(launches), own))
        launches += [_within_bounds(_launch(s.kernel, s.source, s.arguments, m)) for s, m in zip(own, ready)]
    answers = run_launches(launches)
    return [None if w is None else _found(w[0], answers[w[1]:w[1] + len(w[2])], w[2]) for w in wanted]


def _within_bounds(launch: Launch) -> Launch:
    """A kernel without a mask (its size is a multiple of every block the engine tries) gets blocks that divide it."""
    if set(launch.blocks) == {"XBLOCK"} and "xmask = tl.full" in launch.source:
        size = next(a for a in launch.arguments if isinstance(a, int))
        launch.blocks["XBLOCK"] = size & -size
        launch.grid = (size // launch.blocks["XBLOCK"],)
    return launch


def _outputs(region: RegionIR) -> np.ndarray:
    return np.array([o.node for p in region.parts for o in p.outputs])


def _memory(program: Any, seen: Seen, pins: dict[int, np.ndarray]) -> list[Any] | None:
    memory = []
    for argument, ids in zip(seen.arguments, seen.before):
        if not isinstance(argument, Tensor):
            memory.append(argument)
        elif isinstance(argument.storage, IntStorage):
            memory.append(argument.storage.values.astype(argument.dtype))
        elif ids is None:
            return None
        else:
            numbers = np.zeros(ids.size, np.float32)
            for node, values in pins.items():
                here = np.flatnonzero((ids >> SHIFT) == node)
                numbers[here] = values[ids[here] & MASK]
                if program.nodes[node].op == "embedding":
                    (operand,) = program.nodes[node].operands
                    here = np.flatnonzero((ids >> SHIFT) == operand.nodes[0])
                    if here.size:  # the rows of the table that the tokens name
                        read = program.take(operand, lambda n: np.arange(program.nodes[n].size)).reshape(-1)
                        numbers[here[read]] = values
            memory.append(_raw(numbers, argument.dtype))
    return memory


def _raw(numbers: np.ndarray, dtype: str) -> np.ndarray:
    return encode_bfloat16(numbers) if dtype == "bfloat16" else numbers.astype(np.float16).view(np.uint16) if dtype == "float16" else numbers


def _found(region: RegionIR, answers: list[list[Any]], seen: list[Seen]) -> list[np.ndarray]:
    found = {}
    for answer, s in zip(answers, seen):
        for argument, memory, ids in zip(s.arguments, answer, s.after):
            if ids is None:
                continue
            ids = ids[argument.offset:]
            for node in _outputs(region):
                here = np.flatnonzero((ids >> SHIFT) == node)
                if here.size:
                    out = found.setdefault(int(node), np.zeros(int((ids[here] & MASK).max()) + 1, np.float32))
                    out[ids[here] & MASK] = decode(memory[here], argument.dtype)
    return [found[int(n)] for n in _outputs(region)]
