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
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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


def run_in_interpreter(packages: dict[str, dict[str, str]], calls: list[Call], programs: int = 3) -> list[Answer]:
    """packages: name -> path -> text."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        for name, files in packages.items():
            write_package(files, Path(folder), name)
        asked, answered = Path(folder, "asked"), Path(folder, "answered")
        torch.save({"calls": [vars(c) for c in calls], "programs": programs}, asked)
        root = str(Path(__file__).parents[2])
        env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([root, folder, str(Path(__file__).parent)])}
        done = subprocess.run([sys.executable, __file__, str(asked), str(answered)], env=env, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"exit status {done.returncode}: {done.stderr[-4000:]}")
        return [Answer(*a) for a in torch.load(answered)]


def write_package(files: dict[str, str], folder: Path, name: str) -> None:
    package = folder / name
    package.mkdir()
    for path, text in files.items():
        (package / path).write_text(text)


def load_package(files: dict[str, str], folder: Path, name: str) -> Any:
    """The package imported in this process: its plain torch path."""
    write_package(files, folder, name)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


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


def main() -> None:
    import torch
    from triton_interpreter import repair

    repair()
    request = torch.load(sys.argv[1])
    calls = [Call(**c) for c in request["calls"]]
    packages = {c.package: importlib.import_module(c.package) for c in calls}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in packages:
            if hasattr(module, "on_gpu"):
                module.on_gpu = lambda x: True
            if hasattr(module, "programs_for"):
                module.programs_for = lambda tiles, x: min(tiles, request["programs"])
    answers = [call(packages[c.package], c) for c in calls]
    torch.save([(a.outputs, a.gradients) for a in answers], sys.argv[2])


if __name__ == "__main__":
    main()
