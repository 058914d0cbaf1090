"""Verdict and exit status."""

import pytest
from sample_report import qwen3_report

from graphdiff.report.model import Count
from graphdiff.report.verdict import conclude


def report(*, moved=0, unmatched=0, matched=5):
    made = qwen3_report()
    made.summary.moved = Count(training=moved)
    made.summary.unmatched = Count(inference=unmatched)
    made.summary.matched = matched
    return made


@pytest.mark.parametrize(
    ("facts", "verdict", "statuses"),
    [
        ({}, "same", (0, 0, 0)),
        ({"moved": 1}, "moved", (1, 1, 0)),
        ({"unmatched": 1}, "same", (0, 1, 0)),
        ({"matched": 0}, "could not tell", (2, 2, 2)),
        ({"matched": 0, "unmatched": 3}, "could not tell", (2, 2, 2)),
    ],
)
def test_status_by_fail_on(facts, verdict, statuses):
    for fail_on, status in zip(("moved", "unmatched", "never"), statuses, strict=True):
        concluded = conclude(report(**facts), fail_on)
        assert (concluded.verdict, concluded.exit_status) == (verdict, status)


def test_unlike_rounding_modes_are_no_all_clear():
    concluded = conclude(report(), mode_differs=True)
    assert (concluded.verdict, concluded.exit_status) == ("mode differs", 1)
    assert conclude(concluded, "moved").exit_status == 1


def test_concluding_twice_changes_nothing():
    once = conclude(report(moved=2), "never")
    assert (once.verdict, once.exit_status) == ("moved", 0)
    assert conclude(once, "moved").exit_status == 1
