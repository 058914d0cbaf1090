"""Starts our own engine for a capture, in this process or in a child, and stops it when the capture is made."""

import contextlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from graphdiff.capture.inductor.targets import check_target
from graphdiff.capture.models import ModelRef
from graphdiff.capture.vllm import session
from graphdiff.capture.vllm.raw import RawEngineCapture
from graphdiff.capture.vllm.request import Request, read_status, status_file
from graphdiff.capture.vllm.versions import engine, installed_version
from graphdiff.errors import GraphdiffError

QUIET = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "GLOO_LOG_LEVEL": "ERROR",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
SETTINGS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_DISABLE_COMPILE_CACHE": "1",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
    "HF_HUB_OFFLINE": "1",
}
CHILD_TIMEOUT_SECONDS = 3600
MODES = ("compiled", "vllm_compile", "eager")


def check_mode(target: str, mode: str, bucket: int | None = None, *, graph_partition: bool = False,
               inductor: bool = False) -> None:
    """Raises GraphdiffError for a combination that no engine runs in."""
    check_target(target)
    if mode not in MODES:
        raise GraphdiffError(f"unknown mode {mode!r}", where="--mode", fix=f"give {', '.join(MODES[:-1])} or {MODES[-1]}")
    if target != "native" and mode == "eager":
        raise GraphdiffError("only the engine of this machine can be captured eager", where=f"--target {target}", fix="give --target native")
    if target != "native" and mode == "vllm_compile":
        raise GraphdiffError("CUDA's code is always that of VLLM_COMPILE", where=f"--target {target}", fix="leave --mode out, or give --target native")
    if target == "native" and bucket is not None:
        raise GraphdiffError("of this machine's engine the schedule for any number of tokens is captured", where="--bucket", fix="leave --bucket out")
    if target == "native" and graph_partition:
        raise GraphdiffError(
            "this machine's engine is captured without graph partition", where="--graph-partition", fix="leave it out, or give --target cuda:90"
        )

    if mode == "eager" and inductor:
        raise GraphdiffError("an eager engine compiles nothing", where="--inductor", fix="leave it out, or leave --mode eager out")


def capture_engine(
    model: ModelRef,
    *,
    target: str = "cuda:90",
    mode: str = "compiled",
    combo_kernels: bool = True,
    graph_partition: bool = False,
    inductor: dict[str, Any] | None = None,
    compile_sizes: Sequence[int] = (),
    on_captured: Callable[[RawEngineCapture], None] | None = None,
    progress: Callable[[str], None] = lambda line: None,
    debug: bool = False,
    **engine_options: Any,
) -> RawEngineCapture:
    """Start the engine on `model` in this process and return what it compiles; the engine never runs.

    `on_captured` gets the capture while the engine still stands. `compile_sizes` are numbers of tokens for which
    static shape buckets are captured beside the dynamic one. `graph_partition` is use_inductor_graph_partition (the
    whole graph is one piece then), `inductor` its options (inductor_compile_config). `engine_options` are the engine's. With `debug` the engine's own log is shown.
    """
    kept: list[RawEngineCapture] = []

    def keep(raw: RawEngineCapture) -> None:
        if target != "native":
            progress(f"compiled: {len(raw.pieces)} pieces, {sum(p[0].kernels for p in raw.pieces.values())} kernels")
        kept.append(raw)
        if on_captured is not None:
            on_captured(raw)

    request = Request(
        output="",
        target=target,
        mode=mode,
        combo_kernels=combo_kernels,
        graph_partition=graph_partition,
        inductor=inductor or {},
        stop=True,
        debug=debug,
        model=model.name,
        fingerprint=model.fingerprint,
    )
    _start(model, session.Session(request, keep, lambda error: None), compile_sizes, progress, debug, engine_options)
    return kept[0]


def write_engine_capture(
    model: ModelRef,
    output: Path,
    *,
    in_process: bool = True,
    target: str = "cuda:90",
    mode: str = "compiled",
    combo_kernels: bool = True,
    graph_partition: bool = False,
    inductor: dict[str, Any] | None = None,
    compile_sizes: Sequence[int] = (),
    options: dict[str, Any] | None = None,
    progress: Callable[[str], None] = lambda line: None,
    debug: bool = False,
) -> None:
    """Capture the engine on `model` into the file `output`, through `finish.write`.

    `in_process=False` uses a child process: its memory is free afterwards, and its crash is an error like any other.
    """
    request = Request(
        output=str(output),
        target=target,
        mode=mode,
        combo_kernels=combo_kernels,
        graph_partition=graph_partition,
        inductor=inductor or {},
        stop=True,
        debug=debug,
        model=model.name,
        fingerprint=model.fingerprint,
        options=options or {},
    )
    status_file(output).unlink(missing_ok=True)
    if in_process:
        from graphdiff.capture.vllm import finish

        def write(raw: RawEngineCapture) -> None:
            progress("lowering and probing")
            finish.write(raw, request)

        _start(model, session.Session(request, write, lambda error: None), compile_sizes, progress, debug, {})
    else:
        progress("starting the engine in a process of its own")
        _run_child(request, model, compile_sizes)


def _start(
    model: ModelRef,
    current: session.Session,
    compile_sizes: Sequence[int],
    progress: Callable[[str], None],
    debug: bool,
    engine_options: dict[str, Any],
) -> None:
    """Start the engine and wait for the end of the capture; its error is raised."""
    version = installed_version()
    with (
        tempfile.TemporaryDirectory(prefix="graphdiff-engine-") as scratch,
        _environment(scratch, debug),
        contextlib.nullcontext() if debug else _quiet(),
    ):
        private = engine()
        progress(f"starting vllm {version} on {model.name}")
        session.begin(current)
        try:
            private.start_engine(
                str(model.path), compile_sizes=compile_sizes, graph_partition=current.request.graph_partition,
                inductor=current.request.inductor, **engine_options
            )
        except session.CaptureDone as done:
            if done.error is not None:
                raise done.error from None
        else:
            raise GraphdiffError(
                "nothing was captured: the engine started and reported no compiled graph",
                where=f"vllm {version}",
                fix="run again with --debug to see the engine's log",
            )
        finally:
            session.end()
            private.forget_engine()


@contextlib.contextmanager
def _environment(scratch: str, debug: bool) -> Iterator[None]:
    """The engine's settings, with caches in an empty folder; what the user set about logging wins."""
    settings = {
        **SETTINGS,
        "VLLM_CACHE_ROOT": str(Path(scratch) / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(Path(scratch) / "inductor"),
    }
    quiet = {} if debug else {name: value for name, value in QUIET.items() if name not in os.environ}
    before = dict(os.environ)
    os.environ.update({**settings, **quiet})
    os.environ.pop("GRAPHDIFF_CAPTURE", None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No log below an error and no warnings from the engine and its libraries."""
    logger = logging.getLogger("vllm")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _run_child(request: Request, model: ModelRef, compile_sizes: Sequence[int]) -> None:
    with tempfile.TemporaryDirectory(prefix="graphdiff-request-") as scratch:
        path = Path(scratch) / "request.json"
        request.save(path)
        command = [sys.executable, "-m", "graphdiff.capture.vllm.child", str(path), str(model.path)]
        command.append(json.dumps(list(compile_sizes)))
        try:
            result = subprocess.run(
                command,
                stdout=None if request.debug else subprocess.DEVNULL,
                stderr=None if request.debug else subprocess.PIPE,
                text=True,
                timeout=CHILD_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise GraphdiffError(
                f"the engine's process gave no capture within {CHILD_TIMEOUT_SECONDS // 60} minutes",
                where=request.model,
                fix="run again with --debug to see the engine's log",
            ) from error
    status = read_status(request.output)
    if status is None:
        last = (result.stderr or "").strip().splitlines()[-1:] or [f"exit status {result.returncode}"]
        raise GraphdiffError(
            f"the engine's process ended without a capture: {last[0]}",
            where=f"exit status {result.returncode}",
            fix="run again with --debug to see the engine's log; is there enough memory?",
        )
    status_file(request.output).unlink(missing_ok=True)
    status.check()
