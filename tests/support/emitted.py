"""Emitted packages run in Triton's repaired interpreter, through their own operators, in a process of its own.

Started as `python emitted.py REQUEST ANSWER`. In that process every tensor counts as a GPU's, so the operators launch
their kernels; `programs` limits how many programs share the rows where partial sums are kept.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def run_in_interpreter(files: dict[str, str], calls: list[tuple[str, tuple[Any, ...]]], programs: int = 3, backward: bool = False) -> list[Any]:
    """Outputs of each call (operator's name, arguments); with backward, (outputs, gradients of float arguments) for
    random gradients of the outputs that the last arguments hold: arguments = (*inputs, [gradients])."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "emitted_package")
        package.mkdir()
        for path, text in files.items():
            (package / path).write_text(text)
        asked, answered = Path(folder, "asked"), Path(folder, "answered")
        torch.save({"calls": calls, "programs": programs, "backward": backward}, asked)
        root = str(Path(__file__).parents[2])
        env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([root, folder, str(Path(__file__).parent)])}
        done = subprocess.run([sys.executable, __file__, str(asked), str(answered)], env=env, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr[-4000:])
        return torch.load(answered)


def load_package(files: dict[str, str], folder: Path, name: str) -> Any:
    """The package imported in this process: its plain torch path."""
    package = folder / name
    package.mkdir()
    for path, text in files.items():
        (package / path).write_text(text)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


def main() -> None:
    import torch
    from triton_interpreter import repair

    repair()
    request = torch.load(sys.argv[1])
    package = importlib.import_module("emitted_package")
    modules = [m for n, m in sys.modules.items() if n.startswith("emitted_package")]
    for m in modules:
        if hasattr(m, "on_gpu"):
            m.on_gpu = lambda x: True
        if hasattr(m, "programs_for"):
            m.programs_for = lambda tiles, x: min(tiles, request["programs"])
    answers = []
    for name, arguments in request["calls"]:
        if not request["backward"]:
            answers.append(getattr(package, name)(*arguments))
            continue
        *inputs, gradients = arguments
        inputs = [x.requires_grad_() if x.is_floating_point() else x for x in inputs]
        outputs = getattr(package, name)(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        made = torch.autograd.grad(outputs, inputs, gradients, allow_unused=True)
        answers.append((tuple(o.detach() for o in outputs), made))
    torch.save(answers, sys.argv[2])


if __name__ == "__main__":
    main()
