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
    single = {key: value for key, value in data.items() if not _is_list(value)}
    if single:
        console.print(_labels(single))
    for key, value in data.items():
        if _is_list(value):
            _section(console, key, value)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0


def _labels(data: Mapping[str, Any]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for key, value in data.items():
        grid.add_row(Text(clean(key).replace("_", " "), style="dim"), Text(_cell(value)))
    return grid


def _section(console: Console, title: str, entries: Sequence[Any]) -> None:
    console.print()
    console.print(Text(f"{clean(title).replace('_', ' ')} ({len(entries)})", style="bold"))
    shown = entries[:ROWS_SHOWN]
    if all(isinstance(entry, Mapping) for entry in shown):
        console.print(_table(shown))
    else:
        for entry in shown:
            console.print(Padding(Text(_cell(entry)), (0, 0, 0, 2)))
    if len(entries) > len(shown):
        console.print(Text(f"{plural(len(entries) - len(shown), 'more row')}: --format json has all", style="dim"))


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = list(dict.fromkeys(key for row in rows for key in row))[:COLUMNS_SHOWN]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for column in columns:
        number = all(isinstance(row.get(column), int | float | None) for row in rows)
        table.add_column(Text(clean(column)), overflow="fold", justify="right" if number else "left")
    for row in rows:
        table.add_row(*(Text(_cell(row.get(column))) for column in columns))
    return table


def _cell(value: Any) -> str:
    """One value on one line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{clean(str(key))} {_cell(entry)}" for key, entry in value.items()) or "-"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_cell(entry) for entry in value) or "-"
    return clean(str(value))
