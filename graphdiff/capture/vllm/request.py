"""The request that travels to the process that holds the model, and the status that comes back; both small JSON."""

import dataclasses
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphdiff.errors import GraphdiffError

VARIABLE = "GRAPHDIFF_CAPTURE"


@dataclass(frozen=True)
class Request:
    """What to capture and where to write it.

    With `stop` the engine is ours and its start ends after the capture. Without, the engine is somebody's and goes on,
    whatever becomes of the capture; on a CPU it runs with CUDA's defaults (VLLM_COMPILE, plain matmuls). With `debug`
    the traceback of a failure is printed in its process. `mode` is `compiled` or, for the target native, `vllm_compile` or `eager`.
    `graph_partition` and `inductor` (options of Inductor) are for our own engine only: somebody's is captured as it is
    configured.
    `options` are passed on to lowering.
    """

    output: str
    target: str = "cuda:90"
    mode: str = "compiled"
    combo_kernels: bool = True
    graph_partition: bool = False
    inductor: dict[str, Any] = field(default_factory=dict)
    stop: bool = False
    debug: bool = False
    model: str = ""
    fingerprint: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the request to a file."""
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1), encoding="utf-8")


@dataclass(frozen=True)
class Status:
    """How a capture ended, and what the capture file could not say: the error, if any."""

    ok: bool
    what: str = ""
    where: str = ""
    fix: str = ""

    def check(self) -> None:
        """Raise the error that the capturing process met."""
        if not self.ok:
            raise GraphdiffError(self.what, where=self.where, fix=self.fix)


def read_request(path: str | Path) -> Request:
    """The request in a file; unknown fields are an error, so that a misspelt option is not lost."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        return Request(**content)
    except (OSError, ValueError, TypeError) as error:
        raise GraphdiffError(
            "this is no capture request", where=f"{VARIABLE}={path}", fix=f'give JSON like {{"output": ...}}; {error}'
        ) from error


def status_file(output: str | Path) -> Path:
    """Where the status of a capture is written: beside it."""
    return Path(f"{output}.status.json")


def write_status(output: str | Path, error: GraphdiffError | None = None) -> None:
    """Say how the capture ended; written whole or not at all."""
    status = Status(ok=True) if error is None else Status(False, error.what, error.where, error.fix)
    path = status_file(output)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(dataclasses.asdict(status)), encoding="utf-8")
    draft.replace(path)


def read_status(output: str | Path) -> Status | None:
    """The status of a capture, None if no process has written one."""
    try:
        return Status(**json.loads(status_file(output).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
