"""`graphdiff show`: one capture, in words or as JSON."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from graphdiff.cli.options import Ptx


class ListingFormat(StrEnum):
    """How plain data is printed."""

    terminal = "terminal"
    json = "json"


Format = Annotated[ListingFormat, typer.Option("--format", help="Text for people, or JSON for programs.")]


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(show)


def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A capture file.")],
    format: Format = ListingFormat.terminal,
    ptx: Ptx = False,
) -> None:
    """Show the kernels, values and roundings of one capture.

    Executes nothing from the file; --ptx compiles its kernels, after a check of their text.
    Exit status: 0 shown, 2 not a capture that can be read.
    """
    from graphdiff import pipeline
    from graphdiff.cli.progress import progress
    from graphdiff.cli.streams import stdout_for_answer

    if not ptx:
        print_listing(pipeline.show(file), format)
        return
    with stdout_for_answer(), progress("compiling") as say:
        listing = pipeline.show(file, ptx=True, progress=say)
    print_listing(listing, format)


def print_listing(data: dict[str, Any], format: ListingFormat) -> None:
    """Print plain data as text or as JSON."""
    import sys

    from graphdiff.report import print_text, terminal_of

    if format is ListingFormat.json:
        import msgspec

        print_text(msgspec.json.format(msgspec.json.encode(data, enc_hook=str), indent=2).decode() + "\n", sys.stdout)
        return
    from graphdiff.report import listing

    width, color = terminal_of(sys.stdout)
    print_text(listing.render(data, width=width, color=color), sys.stdout)
