"""Small random programs and captures for the tests of the store."""

from __future__ import annotations

import random
import zlib
from typing import Any

import msgspec
import numpy as np

from graphdiff.probe.types import ProbeData
from graphdiff.program import Builder, Program, Site
from graphdiff.store import Capture, CaptureInfo, KernelInfo, ModelInfo, ProbeTokens
from graphdiff.store.container import MAGIC, PREFIX, VERSION


def random_program(seed: int, steps: int = 12) -> Program:
    """Every form of operand and most kinds of op."""
    rng, b = random.Random(seed), Builder()
    numbers = np.random.default_rng(seed)
    x = b.leaf("x", numbers.standard_normal((4, 6)).astype(np.float32), "float32", dynamic=True)
    w = b.leaf("layer.weight", numbers.integers(0, 1 << 16, (6, 6)).astype(np.uint16), "bfloat16")
    values = [x]
    for step in range(steps):
        b.site = Site(kernel=f"kernel_{step % 3}", name=f"tmp{step}", module=f"model.layers.{step}", file="modèle.py", line=step + 1)
        a = rng.choice(values)
        kind = rng.randrange(9)
        if kind == 0:
            y = b.op("mm", a, w)
        elif kind == 1:
            y = b.round(a, rng.choice(["bfloat16", "float16", "float8_e4m3fn"]), rng.choice(["rne", "rz"]))
        elif kind == 2:
            variance = b.op("sum", b.op("mul", a, a), axes=(-1,))
            y = b.op("mul", a, b.op("rsqrt", b.op("add", variance, 1e-6)).reshape(4, 1))
        elif kind == 3:
            y = a.map(lambda ids: np.roll(ids, rng.randrange(6), axis=1))
        elif kind == 4:
            y = b.op(rng.choice(["add", "mul", "maximum", "sub"]), a, rng.choice([rng.choice(values), float("-inf"), 0.5]))
        elif kind == 5:
            y = b.op(rng.choice(["neg", "exp", "abs", "tanh"]), a)
        elif kind == 6:
            y = b.op("cumsum", a, axis=1, shape=a.shape)
        elif kind == 7:
            heads = a.map(lambda ids: ids.reshape(4, 2, 3).swapaxes(0, 1))
            out = b.op("attention", heads, heads, heads, scale=0.5, causal=True)
            y = out.map(lambda ids: ids.swapaxes(0, 1).reshape(4, 6))
        else:
            y = b.op("opaque", a, shape=(4, 6), name="custom", table=[1, [2, "x"]])
        values.append(y)
    b.output("logits", values[-1])
    b.output("hidden", rng.choice(values).map(lambda ids: ids[::2, 1:]))
    return b.program


def random_probe(program: Program, seed: int) -> ProbeData:
    rng = np.random.default_rng(seed)
    n, sketches = len(program.nodes), 5
    sizes = rng.integers(0, 9, sketches)
    hashes = np.concatenate([np.sort(rng.integers(0, 1 << 63, s).astype(np.uint64) * np.uint64(2)) for s in sizes])
    ends = np.cumsum(sizes)
    thresholds = np.array([hashes[e - 1] if s else 2**64 - 1 for s, e in zip(sizes, ends)], np.uint64)
    reads = [(i, s) for i, node in enumerate(program.nodes) for s in range(len(node.operands))]
    reads += [(-1 - i, 0) for i in range(len(program.outputs))]
    count = len(reads)
    return ProbeData(
        hashes=hashes, offsets=np.concatenate(([0], np.cumsum(sizes))), thresholds=thresholds,
        value_sketch=rng.integers(-1, sketches, n).astype(np.int32), value_state=rng.integers(-1, 2, n).astype(np.int32),
        exact_slot=np.full(n, -1, np.int8), live=np.array([node.size for node in program.nodes]),
        reads={"consumer": np.array([c for c, _ in reads], np.int32), "slot": np.array([s for _, s in reads], np.int32),
               "sketch": rng.integers(-1, sketches, count).astype(np.int32), "state": rng.integers(-1, 2, count).astype(np.int32),
               "count": np.full(count, 3), "total": np.full(count, 4), "static": np.zeros(count, np.int8)},
        states=[((), ()), (("bfloat16", "float16"), ("bfloat16",))],
        pins={i: rng.standard_normal(node.size).astype(np.float32) for i, node in enumerate(program.nodes) if node.op == "mm"})


def random_capture(seed: int, steps: int = 12) -> Capture:
    program = random_program(seed, steps)
    header = CaptureInfo(
        kind="vllm", model=ModelInfo(name="tiny", config={"hidden_size": 6, "rope": {"theta": 1e6, "types": ["a", None]}}, layers=2),
        versions={"torch": "2.13.0", "vllm": "0.32.0"}, mode="compile", target="cuda:90", shapes="4",
        probe=ProbeTokens(tokens=[1, 2, 3, 4], positions=[0, 1, 2, 3], seed=7), outputs=["logits", "hidden"],
        differences=["synthetic weights"], not_captured=["sampler"], notes=["größer"],
        kernels=[KernelInfo(name="kernel_0", code="piece0.py", kind="triton", source="tmp0 = 1")])
    return Capture(header, program, random_probe(program, seed) if seed % 4 else None, {"piece0.py": "tmp = 1  # ≤\n", "b.py": ""})


# ---- tampering
def take_apart(data: bytes) -> tuple[list, dict, bytes]:
    """(array descriptions, content, array bytes) of a file, as plain lists and maps."""
    _, _, packed, _, _ = PREFIX.unpack_from(data)
    arrays, content = msgspec.msgpack.decode(zlib.decompress(data[PREFIX.size:PREFIX.size + packed]))
    return arrays, content, data[PREFIX.size + packed:]


def put_together(arrays: Any, content: Any, stored: bytes) -> bytes:
    """A file whose checksums are right, whatever it says."""
    return with_header(msgspec.msgpack.encode([arrays, content]), stored)


def with_header(header: bytes, stored: bytes = b"") -> bytes:
    packed = zlib.compress(header)
    return PREFIX.pack(MAGIC, VERSION, len(packed), len(header), zlib.crc32(packed)) + packed + stored
