"""What a report amounts to: its verdict in words and the exit status of the command that made it."""

from __future__ import annotations

from typing import Literal

from graphdiff.report.model import Output, Region, Report, Verdict

FailOn = Literal["moved", "unmatched", "never"]

NOTHING_FOUND, FINDINGS, COULD_NOT_RUN = 0, 1, 2


def verdict_of(report: Report, *, mode_differs: bool = False) -> Verdict:
    """Moved roundings are a verdict however little else matched; without any, too few matches leave it open, and so do
    outputs that are not the same computation on both sides.

    `mode_differs` is the caller's word that both sides round the same values, in other rounding modes (to nearest, toward
    zero); it matters only while nothing moved.
    """
    moved = report.summary.moved
    if moved.inference or moved.training:
        return "moved"
    if report.summary.matched == 0 and not _is_one_computation(report):
        return "could not tell"
    if mode_differs:
        return "mode differs"
    return "could not tell" if unlike_output(report) else "same"


def nothing_in_common(report: Report) -> bool:
    """True if a side forms values, none of them matched, and no output is the same either."""
    formed = report.summary.values
    if not (formed.inference or formed.training) or report.summary.matched:
        return False
    return all(o.same is False for o in _shared(report))


def _is_one_computation(report: Report) -> bool:
    return bool(_shared(report)) and all(o.same for o in _shared(report))


def unlike_output(report: Report) -> Output | None:
    """The first output that is not the same computation on both sides, or whose bits differ for no known reason."""
    return next((o for o in _shared(report) if o.same is False or o.how == "bits"), None)


def _shared(report: Report) -> list[Output]:
    return [o for o in report.outputs if o.inference is not None and o.training is not None]


def exit_status_of(report: Report, fail_on: FailOn) -> int:
    """0 nothing found, 1 findings, 2 could not tell. `never` silences findings, never an empty comparison."""
    if report.verdict == "could not tell":
        return COULD_NOT_RUN
    if fail_on == "never":
        return NOTHING_FOUND
    unmatched = report.summary.unmatched
    found = report.verdict in ("moved", "mode differs")
    if fail_on == "unmatched":
        found = found or bool(unmatched.inference or unmatched.training)
    return FINDINGS if found else NOTHING_FOUND


def conclude(report: Report, fail_on: FailOn = "moved", *, mode_differs: bool = False) -> Report:
    """Fill in the report's verdict and exit status. Doing it again with the same words changes nothing."""
    report.verdict = verdict_of(report, mode_differs=mode_differs or report.verdict == "mode differs")
    report.exit_status = exit_status_of(report, fail_on)
    return report


def severity(region: Region) -> tuple[int, float, int, int]:
    """How much a region matters, greater is worse.

    Discrete flips first, then the share of output elements that change, then the largest change, then how many values
    moved. A region whose witness could not be run ranks by its moved values alone.
    """
    witness = region.witness
    share = witness.differing / witness.elements if witness.elements else 0.0
    flips = witness.before.flips if witness.before else 0
    return (flips, share, witness.max_ulp or 0, len(region.moved))


def worst_first(regions: list[Region]) -> list[Region]:
    """The regions, most severe first; equals keep their order in the program."""
    return sorted(regions, key=severity, reverse=True)
