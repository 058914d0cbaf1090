"""Writing a file whole or not at all; straight into what is no regular file."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from graphdiff.errors import GraphdiffError
from graphdiff.paths.output import is_special, real_path


def write_whole(path: str | os.PathLike[str], data: bytes, what: str) -> None:
    """Write `data` through a temporary file beside the target, so that no reader ever sees half of it.

    A link stays, what it points at is written; a pipe or device is written into. Raises GraphdiffError: `what`
    ("the capture", "a report") could not be written, and what stood there is as it was.
    """
    where = os.fspath(path)
    try:
        if is_special(where):
            _write_into(where, data)
        else:
            _replace(real_path(where), data)
    except (OSError, ValueError) as error:
        raise GraphdiffError(f"{what} cannot be written: {getattr(error, 'strerror', None) or error}", where=where,
                             fix="check the folder, its permissions and the free space") from error


@contextlib.contextmanager
def file_behind(path: str | os.PathLike[str], what: str) -> Iterator[Path]:
    """A regular file for a process that writes by name: the path itself, or one that is then written into a pipe or device."""
    if not is_special(path):
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="graphdiff-") as folder:
        file = Path(folder) / "output"
        yield file
        write_whole(path, file.read_bytes(), what)


def _replace(target: str, data: bytes) -> None:
    folder, name = os.path.split(target)
    os.makedirs(folder, exist_ok=True)
    draft = os.path.join(folder, f".{name[:200]}.{secrets.token_hex(4)}.part")
    try:
        with open(draft, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):
            os.chmod(draft, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(draft, target)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(draft)


def _write_into(where: str, data: bytes) -> None:
    """Into our own stdout by its descriptor (a file that the shell opened keeps its place), else by opening it."""
    status = os.stat(where)
    own = next((fd for fd in (1, 2) if _is(fd, status)), None)
    handle = os.dup(own) if own is not None else os.open(where, os.O_WRONLY | os.O_APPEND)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(handle, rest):]
    except BrokenPipeError:
        if own is None:
            raise  # of our own stdout, whose reader has gone away, it is no error
    finally:
        os.close(handle)


def _is(fd: int, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), status)
    except OSError:
        return False
