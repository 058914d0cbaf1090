"""Compiles checked kernels with no GPU, in a process of its own with limits on time and memory.

`compiled` is called by graphdiff; `main` is what that process runs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

SECONDS = 180
MEMORY = 16 << 30
"""Bytes of address space; torch's libraries alone map several GiB."""
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "SYSTEMROOT")
ASSEMBLERS = {80: ("sm_80", "ptxas"), 86: ("sm_86", "ptxas"), 89: ("sm_89", "ptxas"), 90: ("sm_90a", "ptxas"),
              100: ("sm_100a", "ptxas-blackwell"), 120: ("sm_120a", "ptxas-blackwell")}
HEADER = """import triton
import triton.language as tl
from triton.language import math as tl_math
from triton.language.extra import libdevice
"""
HELPERS = "from graphdiff.hardware.helpers_torch_2_13 import triton_helpers\n"


class Job(msgspec.Struct, kw_only=True):
    """One compilation. `source` was written from a checked tree; attributes are (argument, divisibility)."""

    source: str
    name: str
    signature: dict[str, str]
    constants: dict[str, int | float | bool | None]
    aligned: list[int] = []
    warps: int = 4
    fp_fusion: bool = True
    sass: bool = False


class Made(msgspec.Struct, kw_only=True):
    """What came of a job: texts, or why not."""

    ptx: str = ""
    sass: str = ""
    log: str = ""
    error: str = ""


def compiled(jobs: Sequence[Job], capability: int, *, seconds: float = SECONDS) -> list[Made]:
    """One child for all jobs; what it could not do is the `error` of each."""
    with tempfile.TemporaryDirectory(prefix="graphdiff-ptx-", ignore_cleanup_errors=True) as work:
        folder = Path(work)
        (folder / "jobs.json").write_bytes(msgspec.json.encode(list(jobs)))
        environment = {k: os.environ[k] for k in KEPT if k in os.environ}
        environment |= {"TRITON_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-P", "-c", "from graphdiff.hardware.compile import main; main()", work, str(capability)]
        done = _run(command, environment, work, seconds)
        if done is None:
            return [Made(error=f"compiling took longer than {seconds:.0f} s")] * len(jobs)
        answer = folder / "made.json"
        if not answer.exists():
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            return [Made(error=f"the compiler stopped: {lines[-1][:200] if lines else f'status {done.returncode}'}")] * len(jobs)
        return msgspec.json.decode(answer.read_bytes(), type=list[Made])


RUNNING: set[subprocess.Popen[str]] = set()
"""The children that compile now, of all threads."""


def stop_running() -> None:
    """End the children that compile now, with the assemblers that they started."""
    for child in list(RUNNING):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def _run(command: list[str], environment: dict[str, str], folder: str, seconds: float) -> subprocess.CompletedProcess[str] | None:
    """The finished child; None if it took too long. In a process group of its own, so that nothing of it stays behind."""
    child = subprocess.Popen(command, env=environment, cwd=folder, text=True, errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, start_new_session=True)
    RUNNING.add(child)
    try:
        _, err = child.communicate(timeout=seconds)
        return subprocess.CompletedProcess(command, child.returncode, "", err)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        RUNNING.discard(child)


# ---- in the child
def main() -> None:
    """Arguments: the folder with jobs.json, and the compute capability (90)."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    folder, capability = Path(sys.argv[1]), int(sys.argv[2])
    jobs = msgspec.json.decode((folder / "jobs.json").read_bytes(), type=list[Job])
    made = [_job(job, capability, folder, n) for n, job in enumerate(jobs)]
    (folder / "half.json").write_bytes(msgspec.json.encode(made))
    os.replace(folder / "half.json", folder / "made.json")


def _job(job: Job, capability: int, folder: Path, number: int) -> Made:
    try:
        return _compile(_load(job, folder, number), job, capability, folder)
    except Exception as error:  # whatever Triton says of a kernel is an answer about that kernel
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return Made(error=f"{type(error).__name__}: {lines[-1][:200] if lines else ''}")


def _load(job: Job, folder: Path, number: int) -> Any:
    """The function: the file defines functions and does nothing else."""
    import importlib.util

    file = folder / f"kernel_{number}.py"
    file.write_text(HEADER + (HELPERS if "triton_helpers." in job.source else "") + "\n\n" + job.source)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, job.name)


def _compile(function: Any, job: Job, capability: int, folder: Path) -> Made:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import ASTSource

    names = function.arg_names
    constants = {(names.index(k),): v for k, v in job.constants.items()}
    attributes = {(place,): [["tt.divisibility", 16]] for place in job.aligned}
    source = ASTSource(function, {n: job.signature[n] for n in names}, constants, attributes)
    options = {"num_warps": job.warps, "enable_fp_fusion": job.fp_fusion}
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    ptx = made.asm["ptx"]
    if not job.sass:
        return Made(ptx=ptx)
    return Made(ptx=ptx, sass=_disassembled(made.asm["cubin"], folder), log=_ptxas(ptx, capability, job.fp_fusion, folder))


def _tool(name: str) -> str:
    import triton.backends.nvidia as nvidia

    return str(Path(nvidia.__file__).parent / "bin" / name)


def _disassembled(cubin: bytes, folder: Path) -> str:
    file = folder / "kernel.cubin"
    file.write_bytes(cubin)
    return subprocess.run([_tool("cuobjdump"), "-sass", str(file)], capture_output=True, text=True, errors="replace").stdout


def _ptxas(ptx: str, capability: int, fp_fusion: bool, folder: Path) -> str:
    name, assembler = ASSEMBLERS[capability]
    file = folder / "kernel.ptx"
    file.write_text(ptx)
    command = [_tool(assembler), "-v", f"--gpu-name={name}", *([] if fp_fusion else ["--fmad=false"]), str(file), "-o", str(folder / "again.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    return done.stdout + done.stderr
