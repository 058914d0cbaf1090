"""Captures of the tests here, each made once per run and kept on disk, also between the workers of one run.

GRAPHDIFF_TEST_CAPTURES names a folder to keep them in from run to run (for work on what reads captures; remove it
after a change to what makes them).
"""

import fcntl
import os
import pickle
import resource
import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Made:
    """A capture on disk: as `graphdiff capture` writes it, and with all its weights. `seconds` it took."""

    path: Path
    weights: Path
    raw: Path
    seconds: float = 0.0
    peak_mb: int = 0


class Captures:
    """engine(...) and training(...) give files; side names are shipped model names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def engine(self, name: str, *, layers: int | None = None, combo: bool = True, partition: bool = False) -> Made:
        """What vLLM compiles for a model: one start of the engine for the capture, the one with weights, the raw one."""
        label = f"{name}-{layers or 2}{'' if combo else '-apart'}{'-whole' if partition else ''}.vllm"
        return self._once(label, lambda made: _engine(made, name, layers, combo, partition))

    def buckets(self, name: str) -> dict[str, Path]:
        """One token in the engine's schedule for exactly one (`decode`) and for any number (`prefill`), from one start."""
        made = self._once(f"{name}-buckets", lambda made: _buckets(made, name))
        return {"decode": made.path, "prefill": made.weights}

    def training(self, name: str, *, layers: int | None = None, **options) -> Made:
        """The transformers forward; options of pipeline.capture_transformers."""
        label = "".join(f"-{k}={v}" for k, v in sorted(options.items()))
        return self._once(f"{name}-{layers or 2}{label}.hf", lambda made: _training(made, name, layers, options))

    def raw(self, name: str, **options):
        """The engine's raw capture: texts of the kernels and real parameters."""
        return pickle.loads(self.engine(name, **options).raw.read_bytes())

    def report(self, engine: Made, training: Made):
        from graphdiff import pipeline

        return pipeline.compare(str(engine.path), str(training.path))

    def _once(self, label: str, make) -> Made:
        made = Made(self.folder / label, self.folder / f"{label}.weights", self.folder / f"{label}.raw")
        done = self.folder / f"{label}.done"
        with open(self.folder / f"{label}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                start = time.monotonic()
                make(made)
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
                done.write_text(f"{time.monotonic() - start:.2f} {peak}")
        seconds, peak = done.read_text().split()
        return replace(made, seconds=float(seconds), peak_mb=int(peak))


def _engine(made: Made, name: str, layers: int | None, combo: bool, partition: bool) -> None:
    from graphdiff import pipeline
    from graphdiff.capture.models import resolve_model
    from graphdiff.capture.vllm.request import Request
    from graphdiff.capture.vllm.run import capture_engine

    model = resolve_model(name, layers=layers)
    options = {"tokens": 8, "config": model.config, "layers": model.layers, "synthetic": model.synthetic}
    wide = "tiny" not in name

    def write(raw) -> None:
        for path, keep in ((made.path, False), (made.weights, True)):
            if not (wide and keep):
                request = Request(output=str(path), model=model.name, fingerprint=model.fingerprint, options={**options, "keep_weights": keep})
                pipeline.program_from_engine(raw, request)
        if not wide:
            made.raw.write_bytes(pickle.dumps(raw))

    capture_engine(model, combo_kernels=combo, on_captured=write, graph_partition=partition)


def _buckets(made: Made, name: str) -> None:
    from graphdiff import pipeline
    from graphdiff.capture.models import resolve_model
    from graphdiff.capture.vllm.request import Request
    from graphdiff.capture.vllm.run import capture_engine

    model = resolve_model(name)

    def write(raw) -> None:
        for path, bucket in ((made.path, 1), (made.weights, "dynamic")):
            options = {"tokens": 1, "bucket": bucket, "config": model.config, "layers": model.layers, "synthetic": model.synthetic}
            pipeline.program_from_engine(raw, Request(output=str(path), model=model.name, fingerprint=model.fingerprint, options=options))

    capture_engine(model, compile_sizes=(1,), on_captured=write)


def _training(made: Made, name: str, layers: int | None, options: dict) -> None:
    from graphdiff import pipeline

    for path, keep in ((made.path, False), (made.weights, True)):
        if not keep or "tiny" in name:
            pipeline.capture_transformers(name, path, layers=layers, keep_weights=keep, **options)


@pytest.fixture(scope="session")
def captures(tmp_path_factory) -> Captures:
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    return Captures(Path(os.environ.get("GRAPHDIFF_TEST_CAPTURES") or shared / "captures"))


@pytest.fixture(scope="session")
def reports(captures):
    """Reports by model, layers and what else differs."""

    @cache
    def made(name: str, layers: int | None = None, combo: bool = True, **options):
        return captures.report(captures.engine(name, layers=layers, combo=combo), captures.training(name, layers=layers, **options))

    return made
