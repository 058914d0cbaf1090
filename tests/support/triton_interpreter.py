"""Triton's interpreter, repaired so that it rounds as hardware does, run in a process of its own.

Stock interpreters (triton 3.7.1 to 3.9.0) truncate float32 -> bfloat16, compute bfloat16 arithmetic on raw bits and
have no libdevice. Transcendentals are graphdiff.program.ops' own, so that bits can be compared. Started as
`python triton_interpreter.py REQUESTS ANSWERS` (pickles that the same test wrote and reads).
"""

from __future__ import annotations

import ast
import os
import pickle
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass
class Launch:
    """One launch: the kernel's source, its name, arguments in order (arrays of memory or numbers), block sizes, grid.

    Float memory is raw bits; `dtypes` names each array's format (torch names)."""

    name: str
    source: str
    arguments: list[Any]
    dtypes: list[str]
    blocks: dict[str, int]
    grid: tuple[int, ...]


def run_launches(launches: list[Launch]) -> list[list[Any]]:
    """Memory of each launch's arguments afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "asked"), Path(folder, "answered")
        asked.write_bytes(pickle.dumps([vars(x) for x in launches]))
        root = str(Path(__file__).parents[2])
        env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": root}
        done = subprocess.run([sys.executable, __file__, str(asked), str(answered)], env=env, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr[-3000:])
        return pickle.loads(answered.read_bytes())


def without_decorator(source: str) -> str:
    """The kernel as plain @triton.jit."""
    tree = ast.parse(source)
    lines = source.splitlines()
    for f in tree.body:
        for d in getattr(f, "decorator_list", []):
            if isinstance(d, ast.Call) and "triton_heuristics" in ast.unparse(d.func):
                for i in range(d.lineno - 1, d.end_lineno):
                    lines[i] = ""
    return "\n".join(lines).replace("triton_helpers.set_driver_to_gpu()", "")


def repair() -> None:
    """Patch the interpreter in this process (before any kernel is defined)."""
    import functools

    import triton.language as tl
    import triton.language.extra.cuda.libdevice as cuda
    import triton.language.extra.libdevice as generic
    from triton.runtime import interpreter

    from graphdiff.program.dtypes import decode, encode_bfloat16
    from graphdiff.program.ops import UNARY

    handle, builder = interpreter.TensorHandle, interpreter.InterpreterBuilder
    widen = lambda bits: decode(np.ascontiguousarray(bits), "bfloat16")  # noqa: E731
    arithmetic = (np.add, np.subtract, np.multiply, np.divide, np.fmod, np.maximum, np.minimum)
    comparing = (np.less, np.greater, np.less_equal, np.greater_equal, np.equal, np.not_equal)
    old_cast, old_float, old_binary, old_unary = (
        builder.cast_impl, builder.create_fp_to_fp, builder.binary_op, builder.unary_op)

    def cast_impl(self, src, dst_type):
        source, target = src.dtype.scalar, dst_type.scalar
        if source == target:
            return src
        if source == tl.bfloat16:
            wide = handle(widen(src.data), tl.float32)
            return wide if target == tl.float32 else old_cast(self, wide, dst_type)
        if target == tl.bfloat16:
            return handle(encode_bfloat16(src.data.astype(np.float32)), target)
        return old_cast(self, src, dst_type)

    def create_fp_to_fp(self, src, dst_type, mode):
        if tl.bfloat16 in (src.dtype.scalar, dst_type.scalar):
            return cast_impl(self, src, dst_type)
        return old_float(self, src, dst_type, mode)

    def binary_op(self, left, right, op):
        if left.dtype.scalar == tl.bfloat16 and op in arithmetic:
            return handle(encode_bfloat16(op(widen(left.data), widen(right.data))), tl.bfloat16)
        if left.dtype.scalar == tl.bfloat16 and op in comparing:
            return handle(op(widen(left.data), widen(right.data)), tl.int1)
        return old_binary(self, left, right, op)

    def unary_op(self, arg, op):
        if arg.dtype.scalar == tl.bfloat16:
            return handle(encode_bfloat16(op(widen(arg.data))), tl.bfloat16)
        return old_unary(self, arg, op)

    names = {"nearest": "nearbyint", "abs": "fabs"}
    library = {f"__nv_{names.get(n, n)}f": f for n, f in UNARY.items()}
    library |= {"__nv_rintf": np.rint, "__nv_fabsf": np.abs, "__nv_powf": np.power, "__nv_fmodf": np.fmod,
                "__nv_fdiv_rn": np.divide, "__nv_isnanf": lambda x: np.isnan(x).astype(np.int32),
                "__nv_isinff": lambda x: np.isinf(x).astype(np.int32)}

    def extern(self, lib_name, lib_path, symbol, args, ret_type, is_pure):
        ins = np.broadcast_arrays(*[x.data for x in args])
        return handle(np.asarray(library[symbol](*ins)), getattr(ret_type, "scalar", ret_type))

    for name, function in {"cast_impl": cast_impl, "create_fp_to_fp": create_fp_to_fp, "binary_op": binary_op,
                           "unary_op": unary_op, "create_extern_elementwise": extern}.items():
        setattr(builder, name, function)
    # The real compiler maps the generic module, which holds only stubs, to the backend's.
    for name in dir(cuda):
        if not name.startswith("_") and hasattr(generic, name):
            setattr(generic, name, functools.partial(getattr(cuda, name), _semantic=interpreter.interpreter_semantic))


def _answer(launch: dict[str, Any], folder: Path, number: int) -> list[Any]:
    import importlib.util

    import torch

    path = folder / f"kernel_{number}.py"
    path.write_text(without_decorator(launch["source"]))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    arguments = []
    for value, dtype in zip(launch["arguments"], launch["dtypes"]):
        if isinstance(value, np.ndarray):
            value = torch.from_numpy(value.copy())
            value = value if str(value.dtype) == f"torch.{dtype}" else value.view(getattr(torch, dtype))
        arguments.append(value)
    getattr(module, launch["name"])[launch["grid"]](*arguments, **launch["blocks"])
    bits = {torch.bfloat16: torch.uint16, torch.float16: torch.uint16}
    return [a.view(bits.get(a.dtype, a.dtype)).numpy() if isinstance(a, torch.Tensor) else a for a in arguments]


def main() -> None:
    asked, answered = Path(sys.argv[1]), Path(sys.argv[2])
    repair()
    launches = pickle.loads(asked.read_bytes())
    answered.write_bytes(pickle.dumps([_answer(x, asked.parent, i) for i, x in enumerate(launches)]))


if __name__ == "__main__":
    main()
