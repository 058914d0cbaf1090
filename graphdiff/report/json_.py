"""The report as JSON, schema 1."""

from __future__ import annotations

from graphdiff.report.model import Report, encode


def render(report: Report) -> str:
    """The report as JSON text; the same report gives the same bytes."""
    return encode(report).decode()
