"""Text of any Triton kernel, executed in the repaired interpreter (graphdiff.verify.interpreter) in a process of its own.

Tests alone do this: the package never executes text of a capture. Started as
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

from graphdiff.verify.interpreter import child_environment, repair


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


def run_launches(launches: list[Launch], seconds: int = 0) -> list[Any]:
    """Memory of each launch's arguments afterwards. With `seconds`, a launch that fails or takes longer is answered by a
    text that says why; else the first that fails raises RuntimeError."""
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "asked"), Path(folder, "answered")
        asked.write_bytes(pickle.dumps([vars(x) for x in launches]))
        env = {**os.environ, **child_environment()}
        command = [sys.executable, __file__, str(asked), str(answered), str(seconds)]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        if done.returncode < 0:
            # Triton's interpreter died of a signal (once seen, on a machine short of memory): that says nothing of bits.
            done = subprocess.run(command, env=env, capture_output=True, text=True)
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


def _answer_in(seconds: int, launch: dict[str, Any], folder: Path, number: int) -> Any:
    import signal

    def late(*_: Any) -> None:
        raise TimeoutError(f"took longer than {seconds} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        return _answer(launch, folder, number)
    except Exception as error:
        if "TimeoutError" in str(error):
            return f"took longer than {seconds} s"
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return f"{type(error).__name__}: {lines[-1] if lines else ''}"
    finally:
        signal.alarm(0)


def _plain_helpers() -> None:
    """A helper that Triton's compiler evaluates is a function of numbers to the interpreter."""
    from torch._inductor.runtime import triton_helpers

    triton_helpers.constexpr_next_power_of_2 = lambda n: 1 << max(0, n - 1).bit_length()


def main() -> None:
    asked, answered, seconds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    repair()
    _plain_helpers()
    launches = pickle.loads(asked.read_bytes())
    one = (lambda *x: _answer_in(seconds, *x)) if seconds else _answer
    answered.write_bytes(pickle.dumps([one(x, asked.parent, i) for i, x in enumerate(launches)]))


if __name__ == "__main__":
    main()
