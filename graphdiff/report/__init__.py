"""The report as data, and every way to show it. One comparison is rendered in all asked formats at once."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TextIO

from graphdiff.errors import GraphdiffError
from graphdiff.report.model import Report, decode, encode
from graphdiff.report.output import Plan, check_extension, chosen_formats, parse_formats, plan, write_file
from graphdiff.report.verdict import conclude

__all__ = [
    "Plan",
    "Report",
    "check_extension",
    "chosen_formats",
    "conclude",
    "decode",
    "encode",
    "parse_formats",
    "plan",
    "print_text",
    "publish",
    "render",
    "render_text",
    "terminal_of",
    "write_file",
]


def render(report: Report, formats: tuple[str, ...], output: Path | str | None = None) -> list[Path]:
    """Print and write the report in these formats, and return the files written.

    The rules for `output` are those of `graphdiff.report.output`. What it returns never depends on the findings: the
    exit status is `report.exit_status`.
    """
    return publish(report, plan(formats, output))


def publish(report: Report, plan: Plan, stream: TextIO | None = None) -> list[Path]:
    """Carry out a plan. Files come first: a reader that closes the pipe early does not cost them."""
    for name, path in plan.files.items():
        write_file(path, render_text(report, name))
    if plan.printed is not None:
        stream = stream or sys.stdout
        width, color = terminal_of(stream)
        print_text(render_text(report, plan.printed, width=width, color=color), stream)
    return list(plan.files.values())


def render_text(report: Report, format: str, *, width: int = 80, color: bool = False) -> str:
    """The report in one format, as text. Renderers are imported when used: JSON needs no rich, text no jinja2."""
    if format == "terminal":
        from graphdiff.report import terminal

        return terminal.render(report, width=width, color=color)
    if format == "json":
        from graphdiff.report import json_

        return json_.render(report)
    if format == "markdown":
        from graphdiff.report import markdown

        return markdown.render(report)
    from graphdiff.report import html

    return html.render(report)


def print_text(text: str, stream: TextIO) -> None:
    """Write text to a stream, whatever its encoding. A reader that has gone away (`| head`) is no error; a full disk is."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write(text.encode(encoding, "replace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        # Python flushes stdout once more at exit; there it must find somewhere to write.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise GraphdiffError(f"cannot write: {error.strerror or error}", where="stdout", fix="check where it goes and the free space") from error


def terminal_of(stream: TextIO) -> tuple[int, bool]:
    """Columns, and whether colour is wanted: on a terminal that has it, unless NO_COLOR says otherwise."""
    width = min(shutil.get_terminal_size((80, 24)).columns, 120)
    if not stream.isatty():
        width = int(os.environ["COLUMNS"]) if os.environ.get("COLUMNS", "").isdigit() else 80
        return width, False
    return width, "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
