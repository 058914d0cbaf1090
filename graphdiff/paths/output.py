"""What an output path is, and whether it can be written: known before a run that may take minutes."""

from __future__ import annotations

import os
import stat

from graphdiff.errors import GraphdiffError

STDOUT = "-"
"""As --output: print."""


def real_path(path: str | os.PathLike[str]) -> str:
    """The file that a path means: links followed, the last one's target where it is not there yet."""
    return os.path.realpath(os.fspath(path))


def is_special(path: str | os.PathLike[str]) -> bool:
    """True for what is written into and never replaced: pipes, devices, and whatever /dev and /proc name."""
    where = os.path.abspath(os.fspath(path))
    if where.startswith(("/dev/", "/proc/")) and not where.startswith("/dev/shm/"):
        return True
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def stated_size(path: str | os.PathLike[str]) -> int:
    """Bytes of what is there; 0 if nothing is."""
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):
        return 0


def check_output_file(path: str | os.PathLike[str], what: str) -> None:
    """Raises GraphdiffError if `what` ("the capture", "a report") cannot be written as the file `path`."""
    where = os.fspath(path)
    if reason := _reason(where):
        raise GraphdiffError(f"{what} cannot be written: {reason}", where=where, fix="give another file as --output")


def _reason(where: str) -> str:
    if not where:
        return "--output is empty"
    if "\0" in where:
        return "this is no path"
    if os.path.isdir(where):
        return "it is a folder"
    if is_special(where):
        return "" if os.path.exists(where) else "nothing can be made there"
    if where.endswith(("/", os.sep)):
        return "this names a folder"
    folder = os.path.dirname(real_path(where))
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        return f"{folder} is not a folder"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"{folder} cannot be written to"
