"""Every Triton launch of an output code, run on random memory by the repaired interpreter and by its program."""

from __future__ import annotations

import ast
import re
from typing import Any
from unittest import mock

import numpy as np
from fixture_inputs import cut_bits, random_bits
from triton_interpreter import Launch, run_launches

from graphdiff.lower.inductor import output_code
from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.kernel_source import KernelSource
from graphdiff.lower.inductor.pieces import float_leaf, integers
from graphdiff.lower.inductor.triton_kernel import launch, partial_sums
from graphdiff.lower.inductor.values import IntStorage, Tensor
from graphdiff.program.builder import Builder
from graphdiff.program.dtypes import STORAGE, decode
from graphdiff.program.evaluate import Evaluation

Call = tuple[KernelSource, str, list[Any]]


def recorded(run: Any) -> list[Call]:
    """The launches (kernel, its source, arguments) that evaluating `run()` makes. Integer memory is copied."""
    calls: list[Call] = []
    sources: dict[str, str] = {}
    real_parse, real_launch = output_code.parse_kernel, output_code.launch

    def parse(name: str, source: str, *rest: Any) -> KernelSource:
        sources[name] = source
        return real_parse(name, source, *rest)

    def record(ctx: Context, kernel: KernelSource, arguments: list[Any]) -> None:
        kept = [integers(a.storage.values.copy(), a.dtype, dynamic=False)
                if isinstance(a, Tensor) and isinstance(a.storage, IntStorage) else a for a in arguments]
        calls.append((kernel, sources[kernel.name], kept))
        real_launch(ctx, kernel, arguments)

    with mock.patch.object(output_code, "parse_kernel", parse), mock.patch.object(output_code, "launch", record):
        run()
    return calls


def differing(calls: list[Call], seed: int = 0, seconds: int = 0) -> list[Any]:
    """(kernel, differing elements, elements written or kept) per launch. With `seconds`: a text instead for a launch
    that the interpreter cannot do, or not in that time."""
    rng = np.random.default_rng(seed)
    memories = [[_memory(kernel, a, rng) for a in arguments] for kernel, _, arguments in calls]
    launches = [_launch(*call, memory) for call, memory in zip(calls, memories)]
    found = []
    for call, memory, answer in zip(calls, memories, run_launches(launches, seconds)):
        if isinstance(answer, str):
            found.append(answer)
            continue
        ours = _by_program(call[0], call[2], memory)
        wrong = sum(unequal(a, b) for a, b in zip(ours, answer) if isinstance(b, np.ndarray))
        found.append((call[0].name, wrong, sum(b.size for b in answer if isinstance(b, np.ndarray))))
    return found


def unequal(a: np.ndarray, b: np.ndarray) -> int:
    """Elements whose bits differ; any NaN equals any NaN."""
    return int(((a != b) & ~(np.isnan(a) & np.isnan(b))).sum())


def _memory(kernel: KernelSource, argument: Any, rng: np.random.Generator) -> Any:
    """A matmul template adds in its tiles' order: whole numbers, whose sums are exact in any."""
    if not isinstance(argument, Tensor):
        return argument
    if isinstance(argument.storage, IntStorage):
        return argument.storage.values.astype(argument.dtype)
    if kernel.kind == "template":
        return cut_bits(rng.integers(-4, 5, argument.storage.size).astype(np.float32), argument.dtype)
    return random_bits(argument.storage.size, argument.dtype, rng)


def _launch(kernel: KernelSource, source: str, arguments: list[Any], memory: list[Any]) -> Launch:
    """Large blocks. Rows are not split; programs without rows clear their sums."""
    dtypes = [a.dtype if isinstance(a, Tensor) else "" for a in arguments]
    shifted = [m[a.offset:] if isinstance(a, Tensor) else m for a, m in zip(arguments, memory)]
    if kernel.kind == "template":
        return Launch(kernel.name, source, shifted[:-3], dtypes[:-3], {}, tuple(arguments[-3:]))
    names = [n for n in kernel.parameters if n not in kernel.blocks]
    sizes = {**(kernel.combo or {}), **dict(zip(names, arguments))}
    numels = lambda dim: [v for n, v in sizes.items() if re.match(rf"{dim}numel", n) and v] or [1]  # noqa: E731
    numel = lambda dim: max(numels(dim))  # noqa: E731
    text = "\n".join(map(ast.unparse, kernel.body))
    blocks = {b: _block(text, dim := b.split("BLOCK")[0].lower(), numels(dim)) for b in kernel.blocks if "BLOCK" in b}
    grid = [-(-numel(dim) // blocks.get(f"{dim.upper()}BLOCK", numel(dim))) for dim in "xyz"]
    if kernel.combo:
        grid = [sum(-(-n // blocks["XBLOCK"]) for n in numels("x"))]
    split = {"RSPLIT": 1, "NUM_STAGES": 1, "RSPLIT_SIZE": _covering(numel("x"))}
    if kernel.grid == "CooperativeReductionGrid":
        grid = [1, grid[0]]
    if kernel.grid == "MixOrderReductionGrid":
        grid = [memory[names.index("ws_ptr")].size // (sizes["r0_numel"] * partial_sums(kernel))]
    return Launch(kernel.name, source, shifted, dtypes, blocks | {n: v for n, v in split.items() if n in kernel.blocks}, tuple(grid))


def _block(text: str, dim: str, numels: list[int]) -> int:
    """A power of two that covers every size (of sub-kernels, several), or, where Inductor left out the mask since every
    block it would take divides the size, the largest that divides all: a larger one would touch memory behind the tensor."""
    masks = re.findall(rf"^\s*{dim}mask = (.*)$", text, re.M)
    if masks and all(f"{dim}index < " in m for m in masks):
        return _covering(max(numels))
    return min(n & -n for n in numels)


def _covering(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def _by_program(kernel: KernelSource, arguments: list[Any], memory: list[Any]) -> list[Any]:
    builder = Builder()
    tensors = []
    for a, m in zip(arguments, memory):
        if not isinstance(a, Tensor):
            tensors.append(a)
        elif a.dtype in STORAGE:
            flat = float_leaf(builder, "memory", m, a.dtype)
            tensors.append(Tensor(flat.storage, a.shape, a.strides, a.offset))
        else:
            tensors.append(Tensor(IntStorage.of(m, a.dtype, dynamic=False), a.shape, a.strides, a.offset))
    launch(Context(builder), kernel, tensors)
    evaluation = Evaluation(builder.program, builder.leaf_bits)
    return [_bits(t, evaluation, builder) if isinstance(t, Tensor) else t for t in tensors]


def _bits(tensor: Tensor, evaluation: Evaluation, builder: Builder) -> np.ndarray:
    """Raw bits of the memory from the tensor's offset on."""
    storage = tensor.storage
    if isinstance(storage, IntStorage):
        return storage.values[tensor.offset:].astype(storage.dtype)
    numbers = evaluation.read(builder.operand(storage.view((storage.size,), (1,)))).astype(np.float32)[tensor.offset:]
    if storage.dtype == "bfloat16":
        bits = (np.ascontiguousarray(numbers).view(np.uint32) >> 16).astype(np.uint16)
        assert np.array_equal(decode(bits, "bfloat16"), numbers, equal_nan=True), "memory holds what bfloat16 cannot"
        return bits
    return numbers.astype(np.float16).view(np.uint16) if storage.dtype == "float16" else numbers
