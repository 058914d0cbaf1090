"""What `show` and `rules` answer, as text: plain data laid out as labels, tables and lists."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from graphdiff.report.words import clean, plural

ROWS_SHOWN = 200
"""Rows of one table; captures of large models have thousands of values."""

COLUMNS_SHOWN = 8

LONG, CELL = 4000, 600
"""Characters of a text that stands alone, and of one in a table."""

_TITLES = {"differences": "unlike production", "documentation": "in the source"}
"""What text for people calls otherwise than JSON does."""


def render(data: Mapping[str, Any], *, width: int = 80, color: bool = False) -> str:
    """A mapping as text: what is single as labelled lines first, then each list as a table of its own."""
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
    single = {key: value for key, value in data.items() if not _is_list(value) and key != "schema"}
    if single:
        console.print(_labels(single))
    for key, value in data.items():
        if _is_list(value):
            _section(console, key, value)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0


def _title(key: str) -> str:
    return _TITLES.get(key, clean(key).replace("_", " "))


def _labels(data: Mapping[str, Any]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for key, value in data.items():
        grid.add_row(Text(_title(key), style="dim"), Text(_cell(value, LONG)))
    return grid


def _section(console: Console, title: str, entries: Sequence[Any]) -> None:
    console.print()
    console.print(Text(f"{_title(title)} ({len(entries)})", style="bold"))
    shown = entries[:ROWS_SHOWN]
    if all(isinstance(entry, Mapping) for entry in shown):
        _rows(console, shown)
    else:
        for entry in shown:
            console.print(Padding(Text(_cell(entry, LONG)), (0, 0, 0, 2)))
    if len(entries) > len(shown):
        console.print(Text(f"{plural(len(entries) - len(shown), 'more row')}: --format json has all", style="dim"))


def _rows(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """A table where every column can hold its longest word, else an entry of a few lines per row. Columns of which no row
    says anything are left out."""
    columns = [key for key in dict.fromkeys(key for row in rows for key in row) if any(row.get(key) not in (None, "") for row in rows)]
    columns = columns[:COLUMNS_SHOWN]
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = _widths([[clean(column), *(line[i] for line in cells)] for i, column in enumerate(columns)], console.width)
    if widths is None:
        for line in cells:
            _entry(console, [clean(column) for column in columns], line)
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for column, width in zip(columns, widths, strict=True):
        number = all(isinstance(row.get(column), int | float | None) and not isinstance(row.get(column), bool) for row in rows)
        table.add_column(Text(clean(column)), overflow="fold", justify="right" if number else "left", width=width)
    for line in cells:
        table.add_row(*map(Text, line))
    console.print(table)


def _widths(columns: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Columns per column: no word is broken, and what room is left goes where lines are longest. None: there is no room."""
    least = [max((len(word) for cell in column for word in cell.split()), default=1) for column in columns]
    most = [max(len(cell) for cell in column) for column in columns]
    left = room - 2 * (len(columns) - 1) - sum(least)
    if left < 0:
        return None
    widths = list(least)
    while left and widths != most:
        narrow = max(range(len(columns)), key=lambda i: most[i] / widths[i])
        widths[narrow] += 1
        left -= 1
    return widths


def _entry(console: Console, columns: Sequence[str], cells: Sequence[str]) -> None:
    """The first cell as a title, the others named below it, broken between them."""
    console.print(Text(cells[0]))
    lines: list[str] = []
    for column, cell in zip(columns[1:], cells[1:], strict=True):
        if cell in ("", "-"):
            continue
        said = f"{column} {cell}"
        if lines and len(lines[-1]) + len(said) + 6 <= console.width:
            lines[-1] += f" · {said}"
        else:
            lines.append(said)
    for line in lines:
        console.print(Padding(Text(line, style="dim", overflow="fold"), (0, 0, 0, 3)))


def _cell(value: Any, limit: int = CELL) -> str:
    """One value on one line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        said = {key: entry for key, entry in value.items() if entry is not None and entry != "" and entry != {}}
        return ", ".join(f"{clean(str(key))} {_cell(entry, limit)}" for key, entry in said.items()) or "-"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_cell(entry, limit) for entry in value) or "-"
    return clean(str(value), limit)
