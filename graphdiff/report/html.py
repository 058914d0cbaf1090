"""The report as one self-contained HTML file: no script, nothing fetched, light or dark as the reader's system is."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from graphdiff.report import machine, words
from graphdiff.report.model import Report
from graphdiff.report.verdict import worst_first

_TEMPLATES = Path(__file__).parent / "templates"

LISTED = 1000
"""Entries of one list; the JSON report has all."""


def render(report: Report) -> str:
    """The report as HTML. Everything from a capture is escaped by the template engine."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sides = (("inference", report.inference), ("training", report.training))
    lists = (
        ("Not found on the other side", [words.unmatched(entry) for entry in report.unmatched]),
        ("Hidden by the other side", [words.opaque(entry) for entry in report.opaque]),
        ("Not captured", words.not_captured(report)),
        ("Unlike production", words.differences(report)),
        ("Versions", [f"{name}: {words.versions(side)}" for name, side in sides if side.versions]),
        ("Machine code", machine.lines(report)),
        ("Notes", [words.clean(note, 600) for note in report.notes]),
    )
    return environment.get_template("report.html.j2").render(
        report=report,
        regions=worst_first(report.regions)[:LISTED],
        sides=sides,
        lists=lists,
        listed=LISTED,
        words=words,
    )
