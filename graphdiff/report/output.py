"""Where a report goes: formats and paths are settled before anything expensive runs, files appear whole or not at all.

`--output` names a directory when it is one, ends in a slash, has no extension, or takes several formats; it then holds
`report.txt`, `report.json`, `report.md`, `report.html`. Otherwise it is the one file to write.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from graphdiff.errors import GraphdiffError

FILE_NAMES = {"terminal": "report.txt", "json": "report.json", "markdown": "report.md", "html": "report.html"}
"""The formats that can be rendered, with the file each becomes in a directory."""

PLANNED = ("sarif", "junit", "github")
"""Formats that are announced and not built yet."""


@dataclass(frozen=True)
class Plan:
    """What one run renders: the formats in order, the file of each (if any), and which of them is printed."""

    formats: tuple[str, ...]
    files: dict[str, Path]
    printed: str | None


def parse_formats(text: str) -> tuple[str, ...]:
    """`terminal,json` as format names, each once, in order."""
    names = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    known = ", ".join(FILE_NAMES)
    if not names:
        raise GraphdiffError("--format names no format", fix=f"give one or more of {known}")
    for name in names:
        if name in PLANNED:
            raise GraphdiffError(f"--format {name} is not available yet", fix=f"use one or more of {known}")
        if name not in FILE_NAMES:
            raise GraphdiffError(f"--format {name} is not a format", fix=f"use one or more of {known}")
    return names


def plan(formats: tuple[str, ...], output: Path | str | None) -> Plan:
    """Settle what is printed and what is written, and fail now if it cannot be.

    Without `output` one format is printed. With it every format is written, and the terminal report printed too.
    """
    if output is None:
        if len(formats) > 1:
            raise GraphdiffError("several formats need a directory", fix="give --output DIRECTORY, or one --format")
        return Plan(formats, {}, formats[0])
    path = Path(output)
    if _names_directory(str(output), path, formats):
        if path.exists() and not path.is_dir():
            raise GraphdiffError("--output is a file", where=str(path), fix="several formats need a directory")
        files = {name: path / FILE_NAMES[name] for name in formats}
    else:
        files = {formats[0]: path}
    for file in files.values():
        _check_writable(file)
    return Plan(formats, files, "terminal" if "terminal" in formats else None)


def _names_directory(text: str, path: Path, formats: tuple[str, ...]) -> bool:
    if len(formats) > 1 or path.is_dir() or text.endswith(("/", os.sep)):
        return True
    return not path.suffix and not path.exists()


def _check_writable(file: Path) -> None:
    """Find out before the run what would fail after it."""
    if file.is_dir():
        raise GraphdiffError("a report cannot replace a directory", where=str(file), fix="choose another --output")
    parent = file.parent
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    if not parent.is_dir():
        raise GraphdiffError("not a directory", where=str(parent), fix="choose another --output")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise GraphdiffError("cannot write there", where=str(parent), fix="choose another --output or its permissions")


def write_file(path: Path, text: str) -> None:
    """Write a file through a temporary one beside it, so that no reader ever sees half of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n", errors="replace") as file:
                file.write(text)
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise GraphdiffError(
            f"could not write: {error.strerror or error}", where=str(path), fix="choose another --output"
        ) from error


def _umask() -> int:
    """The process's file mode mask; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
