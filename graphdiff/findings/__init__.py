"""Moved values -> findings: regions named by rules, folded over layers, proved, and written into a report."""

from graphdiff.findings.assemble import report_of

__all__ = ["report_of"]
