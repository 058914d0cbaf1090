"""Triton's interpreter, repaired so that it rounds as hardware does, and emitted packages run in it: in a child process.

Stock interpreters (triton 3.7.1 to 3.9.0) truncate float32 -> bfloat16, compute bfloat16 arithmetic on raw bits and
have no libdevice. Transcendentals are graphdiff.program.ops' own, so that bits can be compared. In the child every
tensor counts as a GPU's, so operators launch their kernels; `programs` limits how many programs share the rows where
partial sums are kept. Started as `python -m graphdiff.verify.interpreter REQUEST ANSWER`; both files hold tensors.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

TIMEOUT = 900
"""Seconds after which a child is given up."""


@dataclass
class Call:
    """One call of an operator; with `gradients` (of the outputs), gradients of its float inputs are asked for too."""

    package: str
    name: str
    inputs: tuple[Any, ...]
    gradients: tuple[Any, ...] | None = None


@dataclass
class Answer:
    outputs: tuple[Any, ...]
    gradients: tuple[Any, ...] = ()
    error: str = ""
    """Why there is nothing, if errors are kept."""


def run_in_interpreter(packages: dict[str, dict[str, str]], calls: list[Call], programs: int = 3, keep_errors: bool = False) -> list[Answer]:
    """packages: name -> path -> text. Raises RuntimeError with what the child said; `keep_errors`: a call's own is its answer."""
    import torch

    with tempfile.TemporaryDirectory(prefix="graphdiff-") as folder:
        for name, files in packages.items():
            write_package(files, Path(folder), name)
        asked, answered = Path(folder, "asked"), Path(folder, "answered")
        torch.save({"calls": [vars(c) for c in calls], "programs": programs, "keep_errors": keep_errors}, asked)
        env = {**os.environ, **child_environment(folder)}
        done = subprocess.run([sys.executable, "-m", "graphdiff.verify.interpreter", str(asked), str(answered)], env=env, cwd=folder,
                              capture_output=True, text=True, timeout=TIMEOUT)
        if done.returncode:
            raise RuntimeError(f"exit status {done.returncode}: {done.stderr[-4000:]}")
        return [Answer(*a) for a in torch.load(answered)]


def child_environment(*paths: str) -> dict[str, str]:
    """What a process with the interpreter needs: the switch, and graphdiff and `paths` to import from."""
    return {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *paths])}


def write_package(files: dict[str, str], folder: Path, name: str) -> None:
    """The files as an importable package."""
    package = folder / name
    package.mkdir()
    for path, text in files.items():
        (package / path).write_text(text)


def failure_of(error: Exception) -> str:
    """The last line of what a child said."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:200] if lines else type(error).__name__


def repair() -> None:
    """Patch the interpreter in this process (before any kernel is defined)."""
    import functools

    import triton.language as tl
    import triton.language.extra.cuda.libdevice as cuda
    import triton.language.extra.libdevice as generic
    from triton.runtime import interpreter

    from graphdiff.program.dtypes import decode, encode, encode_bfloat16

    handle, builder = interpreter.TensorHandle, interpreter.InterpreterBuilder
    low = {tl.float8e4nv: "float8_e4m3fn", tl.float8e5: "float8_e5m2"}
    widen = lambda bits: decode(np.ascontiguousarray(bits), "bfloat16")  # noqa: E731
    arithmetic = (np.add, np.subtract, np.multiply, np.divide, np.fmod, np.maximum, np.minimum)
    comparing = (np.less, np.greater, np.less_equal, np.greater_equal, np.equal, np.not_equal)
    old_cast, old_float, old_binary, old_unary, old_dot = (
        builder.cast_impl, builder.create_fp_to_fp, builder.binary_op, builder.unary_op, builder.create_dot)

    def cast_impl(self, src, dst_type):
        source, target = src.dtype.scalar, dst_type.scalar
        if source == target:
            return src
        if source == tl.bfloat16:
            wide = handle(widen(src.data), tl.float32)
            return wide if target == tl.float32 else old_cast(self, wide, dst_type)
        if target == tl.bfloat16:
            return handle(encode_bfloat16(src.data.astype(np.float32)), target)
        if target in low and source == tl.float32:
            return handle(encode(src.data, low[target]), target)
        return old_cast(self, src, dst_type)

    def create_fp_to_fp(self, src, dst_type, mode):
        if tl.bfloat16 in (src.dtype.scalar, dst_type.scalar) or dst_type.scalar in low:
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

    def create_dot(self, a, b, d, input_precision, max_num_imprecise_acc):
        a, b = (handle(widen(x.data), tl.float32) if x.dtype.scalar == tl.bfloat16 else x for x in (a, b))
        return old_dot(self, a, b, d, input_precision, max_num_imprecise_acc)

    library = library_functions()

    def extern(self, lib_name, lib_path, symbol, args, ret_type, is_pure):
        ins = np.broadcast_arrays(*[x.data for x in args])
        with np.errstate(all="ignore"):
            return handle(np.asarray(library[symbol](*ins)), getattr(ret_type, "scalar", ret_type))

    for name, function in {"cast_impl": cast_impl, "create_fp_to_fp": create_fp_to_fp, "binary_op": binary_op,
                           "unary_op": unary_op, "create_dot": create_dot, "create_extern_elementwise": extern}.items():
        setattr(builder, name, function)
    # The real compiler maps the generic module, which holds only stubs, to the backend's.
    for name in dir(cuda):
        if not name.startswith("_") and hasattr(generic, name):
            setattr(generic, name, functools.partial(getattr(cuda, name), _semantic=interpreter.interpreter_semantic))


def library_functions() -> dict[str, Callable[..., np.ndarray]]:
    """CUDA's libdevice on float32 by symbol (triton/language/extra/cuda/libdevice.py): every function that a lowering knows."""
    from graphdiff.program.ops import BINARY, EXACT_BINARY, UNARY

    names = {"nearest": "nearbyint"}
    library = {f"__nv_{names.get(n, n)}f": f for n, f in UNARY.items()}
    library |= {f"__nv_{n}f": BINARY[n] for n in ("pow", "fmod", "atan2", "nextafter")}
    library |= {f"__nv_f{n}_rn": BINARY[n] for n in ("add", "sub", "mul", "div")}
    tests = {"isnan": np.isnan, "isinf": np.isinf, "finite": np.isfinite, "signbit": np.signbit}
    library |= {f"__nv_{n}f": lambda x, f=f: f(x).astype(np.int32) for n, f in tests.items()}
    return library | {
        "__nv_rintf": np.rint, "__nv_fabsf": np.abs, "__nv_fsqrt_rn": UNARY["sqrt"], "__nv_fast_expf": UNARY["exp"], "__nv_powif": np.power,
        "__nv_copysignf": EXACT_BINARY["copysign"], "__nv_hypotf": _hypot, "__nv_ldexpf": np.ldexp, "__nv_fmaf": lambda x, y, z: x * y + z,
        "__nv_isfinited": lambda x: np.isfinite(x).astype(np.int32)}


def _hypot(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """As lowerings write it: the root of the squares' sum, scaled by the larger one where a square leaves float32."""
    x, y = np.abs(x), np.abs(y)
    top = np.maximum(x, y)
    share = np.minimum(x, y) / top
    plain = (top == 0) | ((top > 1e-18) & (top < 1e18)) | np.isnan(top)
    size = np.where(plain, np.sqrt(x * x + y * y), top * np.sqrt(share * share + np.float32(1)))
    return np.where(np.isinf(x) | np.isinf(y), np.float32(np.inf), size).astype(x.dtype)


def call(package: Any, asked: Call) -> Answer:
    """A call in this process."""
    import torch

    inputs = [x.detach().requires_grad_() if asked.gradients is not None and x.is_floating_point() else x for x in asked.inputs]
    outputs = getattr(package, asked.name)(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    if asked.gradients is None:
        return Answer(tuple(outputs))
    made = torch.autograd.grad(outputs, inputs, list(asked.gradients), allow_unused=True)
    return Answer(tuple(o.detach() for o in outputs), made)


def serve(asked: Path, answered: Path) -> None:
    """The child: every call of the request, answered in order."""
    import torch

    repair()
    request = torch.load(asked)
    calls = [Call(**c) for c in request["calls"]]
    packages = {c.package: importlib.import_module(c.package) for c in calls}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in packages:
            if hasattr(module, "on_gpu"):
                module.on_gpu = lambda x: True
            if hasattr(module, "programs_for"):
                module.programs_for = lambda tiles, x: min(tiles, request["programs"])
    answers = []
    for c in calls:
        try:
            answers.append(call(packages[c.package], c))
        except Exception as error:
            if not request["keep_errors"]:
                raise
            answers.append(Answer((), (), " ".join(f"{type(error).__name__}: {error}".split())[:300]))
    torch.save([(a.outputs, a.gradients, a.error) for a in answers], answered)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]))
