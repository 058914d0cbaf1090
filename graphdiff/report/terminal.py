"""The report on a terminal, or as text in a pipe: no colour codes there, 80 columns unless COLUMNS says more.

The first ten lines decide: what was compared and on what, how much of it matched, the verdict with its exit status, what
it does to the whole program, the worst regions; then what to do. What follows answers where and why, and is cut with a
count when a report is long.
"""

from __future__ import annotations

import io
from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from graphdiff.report import machine, words
from graphdiff.report.model import Moved, Region, Report
from graphdiff.report.verdict import worst_first

WIDE = 76
"""Columns from which the region table shows every column."""

LABEL_WIDTH, HEAD_WIDTH = 9, 12
ROWS_SHOWN, DETAILS_SHOWN, ENTRIES_SHOWN = 40, 12, 10
"""Regions in the table, regions with details, lines of each list; a report of thousands stays readable."""

_STYLE = {"moved": "bold red", "same": "bold green", "mode differs": "bold yellow", "could not tell": "bold yellow"}


def render(report: Report, *, width: int = 80, color: bool = False) -> str:
    """The report as text of at most `width` columns; commands to copy are never wrapped."""
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=max(width, 40),
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    _trust(console, report)
    regions = worst_first(report.regions)
    if regions:
        _table(console, regions)
    _advice(console, report)
    _details(console, regions)
    _whole_program(console, report)
    sides = (("inference", report.inference), ("training", report.training))
    _list(console, "Not found on the other side", (words.unmatched(entry) for entry in report.unmatched))
    _list(console, "Hidden by the other side", (words.opaque(entry) for entry in report.opaque))
    _list(console, "Not captured", words.not_captured(report))
    _list(console, "Unlike production", words.differences(report))
    _list(console, "Machine code", machine.lines(report))
    _list(console, "Versions", [f"{name}: {words.versions(side)}" for name, side in sides if side.versions])
    _list(console, "Notes", (words.clean(note, 600) for note in report.notes))
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _trust(console: Console, report: Report) -> None:
    """What was compared, how much matched, the verdict, and what it does to the whole program."""
    rows: list[tuple[str, str | Text]] = [
        ("inference", words.side(report.inference)),
        ("training", words.side(report.training)),
        ("probe", words.probe(report)),
        ("matched", words.matched(report)),
        ("not captured", words.left_out(report, console.width - HEAD_WIDTH - 2)),
    ]
    rows += [("outputs", text) for text in words.outputs(report)]
    console.print(_grid([row for row in rows if row[1]], label_width=HEAD_WIDTH))
    console.print(Text(words.verdict(report), style=_STYLE[report.verdict]))
    if report.whole_program is not None:
        console.print(Text(words.whole_program(report.whole_program)))


def _table(console: Console, regions: list[Region]) -> None:
    """A row per region, worst first."""
    wide = console.width >= WIDE
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("#", justify="right")
    table.add_column("region", overflow="fold", ratio=1)
    columns = ("train", "infer", "changed", *(("ulp", "signs") if wide else ()))
    for column in columns:
        table.add_column(column, justify="left" if column == "signs" else "right", no_wrap=True)
    table.add_column("proof", no_wrap=True)
    for number, region in enumerate(regions[:ROWS_SHOWN], 1):
        table.add_row(*_row(number, region, wide))
    console.print()
    console.print(table)
    _cut(console, len(regions) - ROWS_SHOWN, "region")
    console.print(Text(words.legend((*columns, "proof")), style="dim"))


def _row(number: int, region: Region, wide: bool) -> list[str]:
    witness = region.witness
    checked = witness.elements > 0
    cells = [
        str(number),
        f"{words.clean(region.name, 60)} ({words.repeats(region)})",
        str(region.moved_in("training")),
        str(region.moved_in("inference")),
        words.percent(witness.differing, witness.elements),
    ]
    if wide:
        ulp = str(witness.max_ulp) if checked and witness.max_ulp is not None else "-"
        cells += [ulp, words.signs(witness.before)]
    return [*cells, words.proof(witness)]


def _details(console: Console, regions: list[Region]) -> None:
    """Where each rounding moved and why, for the worst regions."""
    for number, region in enumerate(regions[:DETAILS_SHOWN], 1):
        named = "" if region.rule in (None, region.name) else f"  [{words.clean(region.rule or '', 60)}]"
        console.print()
        console.print(Text(f"{number}. {words.clean(region.name, 100)}{named}", style="bold"))
        rows: list[tuple[str, str | Text]] = [("in", _modules(region))]
        if region.kernels:
            rows.append(("kernels", _some([words.clean(kernel, 120) for kernel in region.kernels], 3)))
        rows.append(("why", words.mechanisms(region)))
        if region.witness.elements:
            rows.append(("matters", words.bits(words.witness_bits(region.witness))))
        rows.append(("proof", words.proof_sentence(region.witness)))
        console.print(Padding(_grid(rows), (0, 0, 0, 3)))
        for entry in region.moved[:ENTRIES_SHOWN]:
            _moved(console, entry, region)
        _cut(console, len(region.moved) - ENTRIES_SHOWN, "value", indent=3)
    if len(regions) > DETAILS_SHOWN:
        console.print()
        _cut(console, len(regions) - DETAILS_SHOWN, "region", what="details of ")


def _moved(console: Console, entry: Moved, region: Region) -> None:
    """One moved rounding: the value as a person writes it, then both places."""
    console.print(
        Padding(Text.assemble((words.clean(entry.value, 100), "bold"), f"  {words.moved(entry, region)}"), (0, 0, 0, 3))
    )
    rows: list[tuple[str, str | Text]] = [
        ("training", words.places(entry, "training")),
        ("inference", words.places(entry, "inference")),
    ]
    if entry.read_by:
        rows.append(("read by", _some([words.clean(name, 80) for name in entry.read_by], 4)))
    console.print(Padding(_grid(rows), (0, 0, 0, 6)))


def _modules(region: Region) -> str:
    modules = [words.clean(module, 120) for module in region.modules]
    return _some(modules, 4) + f" ({words.repeats(region)})" if modules else words.repeats(region)


def _whole_program(console: Console, report: Report) -> None:
    if report.whole_program is None:
        return
    witness = report.whole_program
    rows: list[tuple[str, str | Text]] = [("proof", words.proof_sentence(witness))]
    if witness.elements:
        rows.insert(0, ("matters", words.bits(words.witness_bits(witness))))
    console.print()
    console.print(Text("Whole program", style="bold"))
    console.print(Padding(_grid(rows), (0, 0, 0, 3)))


def _advice(console: Console, report: Report) -> None:
    if not report.advice:
        return
    console.print()
    console.print(Text("What to do", style="bold"))
    for advice in report.advice[:ENTRIES_SHOWN]:
        console.print(Padding(_grid([("-", words.clean(advice.text, 600))], label_width=1), (0, 0, 0, 3)))
        if advice.command:
            # Not wrapped, so that it can be copied.
            console.print(Text("       " + words.clean(advice.command, 600)), soft_wrap=True)
    _cut(console, len(report.advice) - ENTRIES_SHOWN, "entry", "entries", indent=3)


def _list(console: Console, title: str, entries: Iterable[str]) -> None:
    """A titled list, cut with a count; left out when empty."""
    lines = list(entries)
    if not lines:
        return
    console.print()
    console.print(Text(f"{title} ({len(lines)})", style="bold"))
    for line in lines[:ENTRIES_SHOWN]:
        console.print(Padding(_grid([("-", line)], label_width=1), (0, 0, 0, 3)))
    _cut(console, len(lines) - ENTRIES_SHOWN, "entry", "entries", indent=3)


def _cut(console: Console, left: int, one: str, many: str = "", *, what: str = "", indent: int = 0) -> None:
    """Say how much is left out, and where all of it stands."""
    if left > 0:
        counted = words.plural(left, f"more {one}", f"more {many or one + 's'}")
        text = f"{what}{counted}: --format json has all"
        console.print(Padding(Text(text, style="dim"), (0, 0, 0, indent)))


def _some(entries: list[str], shown: int) -> str:
    more = f" and {len(entries) - shown} more" if len(entries) > shown else ""
    return ", ".join(entries[:shown]) + more


def _grid(rows: list[tuple[str, str | Text]], *, label_width: int = LABEL_WIDTH) -> RenderableType:
    """Labels and texts side by side; long texts wrap under themselves."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=label_width, no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in rows:
        grid.add_row(Text(label, style="dim"), text if isinstance(text, Text) else Text(text))
    return grid
