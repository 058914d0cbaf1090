"""Where a report goes: formats and paths are settled before anything expensive runs, files appear whole or not at all.

`--output` names a directory when it is one, ends in a slash, has no extension, or takes several formats; it then holds
`report.txt`, `report.json`, `report.md`, `report.html`. Otherwise it is the one file to write, and its extension says
the format where `--format` does not. `-` is stdout.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from graphdiff.errors import GraphdiffError
from graphdiff.paths import STDOUT, check_output_file, refuse_inputs, write_whole

FILE_NAMES = {"terminal": "report.txt", "json": "report.json", "markdown": "report.md", "html": "report.html"}
"""The formats that can be rendered, with the file each becomes in a directory."""

EXTENSIONS = {".txt": "terminal", ".json": "json", ".md": "markdown", ".markdown": "markdown", ".html": "html", ".htm": "html"}
"""What an extension says of the format."""

PLANNED = ("sarif", "junit", "github")
"""Formats that are announced and not built yet."""


@dataclass(frozen=True)
class Plan:
    """What one run renders: the formats in order, the file of each (if any), and which of them is printed."""

    formats: tuple[str, ...]
    files: dict[str, Path]
    printed: str | None


def chosen_formats(text: str | None, output: Path | str | None) -> tuple[str, ...]:
    """The formats that `--format` names; without it, what the extension of `output` says, or the terminal's."""
    if text is not None:
        return parse_formats(text)
    said = _said(str(output)) if output is not None and not os.path.isdir(output) else None
    return (said or "terminal",)


def _said(output: str) -> str | None:
    """The format that a path's extension stands for."""
    return EXTENSIONS.get(os.path.splitext(output)[1].lower())


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


def plan(formats: tuple[str, ...], output: Path | str | None, reads: Iterable[str] = ()) -> Plan:
    """Settle what is printed and what is written, and fail now if it cannot be.

    Without `output` one format is printed. With it every format is written, and the terminal report printed too.
    reads: files that no output may replace.
    """
    if output is None or str(output) == STDOUT:
        if len(formats) > 1:
            raise GraphdiffError("several formats need a directory", where="-" if output else "", fix="give --output DIRECTORY, or one --format")
        return Plan(formats, {}, formats[0])
    text = str(output)
    if not text:
        raise GraphdiffError("--output is empty", fix="name a file or directory, or - for stdout")
    path = Path(text)
    if len(formats) > 1 and _said(text) and not path.is_dir() and not text.endswith(("/", os.sep)):
        raise GraphdiffError(f"several formats ({','.join(formats)}) and the name of one file", where=text,
                             fix="give a directory as --output, or one --format")
    if _names_directory(text, path, formats):
        if path.exists() and not path.is_dir():
            raise GraphdiffError("--output is a file", where=text, fix="several formats need a directory" if len(formats) > 1 else "leave the slash out")
        files = {name: path / FILE_NAMES[name] for name in formats}
    else:
        check_extension(formats[0], text)
        files = {formats[0]: path}
    reads = list(reads)
    for file in files.values():
        check_output_file(file, "the report")
        refuse_inputs(file, reads)
    return Plan(formats, files, "terminal" if "terminal" in formats else None)


def check_extension(format: str, output: str) -> None:
    """Raises GraphdiffError where a file's extension says another format than asked for."""
    said = _said(output)
    if said not in (None, format):
        raise GraphdiffError(f"--format {format} and a file whose name says {said}", where=output,
                             fix=f"name it {os.path.splitext(output)[0]}{os.path.splitext(FILE_NAMES[format])[1]}, or give --format {said}")


def _names_directory(text: str, path: Path, formats: tuple[str, ...]) -> bool:
    if len(formats) > 1 or path.is_dir() or text.endswith(("/", os.sep)):
        return True
    return not path.suffix and not path.exists()


def write_file(path: Path, text: str) -> None:
    """Write a file whole or not at all (see `write_whole`). Raises GraphdiffError."""
    write_whole(path, text.encode("utf-8", "replace"), "the report")
