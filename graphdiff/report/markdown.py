"""The report as Markdown for a pull request: the verdict and the worst rows open, everything else folded.

Comments end at 64 KB, so the text is cut, with a count, before `LIMIT` bytes. Strings of a capture are escaped: none
may open a tag, mention a person, or link anywhere.
"""

from __future__ import annotations

import html

from graphdiff.report import machine, words
from graphdiff.report.model import Moved, Region, Report
from graphdiff.report.verdict import worst_first

LIMIT = 60_000
"""Bytes of the whole text."""

ROWS_OPEN = 5
"""Regions shown without unfolding."""

LINE = 100
"""Columns of an entry that stands below in full."""

LIST_SHOWN = 50
"""Entries of each folded list."""

_RESERVE = 400
"""Bytes kept for the line that counts what was cut."""

_HEADER = (
    "| # | region | rounded in training only | in inference only | outputs changed | max ulp | signs | proof |\n"
    "|--:|:--|--:|--:|--:|--:|:--|:--|\n"
)

_ICON = {"moved": "❌", "same": "✅", "mode differs": "⚠️", "could not tell": "⚠️"}


def render(report: Report) -> str:
    """The report as Markdown, below `LIMIT` bytes whatever it holds."""
    regions = worst_first(report.regions)
    blocks = [_head(report), *_rows(regions), _advice(report)]
    blocks += [_details(number, region) for number, region in enumerate(regions, 1)]
    blocks += _folded_lists(report)
    return _within_limit([block for block in blocks if block])


def _within_limit(blocks: list[str]) -> str:
    """The first blocks that fit, each whole so that no table or fold stays open, and how many did not."""
    size, kept = _RESERVE, []
    for block in blocks:
        size += len(block.encode()) + 1
        if size > LIMIT:
            left = words.plural(len(blocks) - len(kept), "more section")
            kept.append(f"_{left} cut to stay below {LIMIT // 1000} KB; `--format json` has everything._\n")
            break
        kept.append(block)
    return "\n".join(kept)


def _head(report: Report) -> str:
    lines = [
        f"### graphdiff {_ICON[report.verdict]} {_text(words.verdict(report))}",
        "",
        "| | |",
        "|:--|:--|",
        f"| inference | {_text(words.side(report.inference))} |",
        f"| training | {_text(words.side(report.training))} |",
        f"| probe | {_text(words.probe(report))} |",
        f"| matched | {_text(words.matched(report))} |",
    ]
    for label, entries in (
        ("not captured", words.not_captured(report)),
        ("unlike production", words.differences(report)),
    ):
        if entries:
            lines.append(f"| {label} | {_text(words.first_of(entries, LINE))} |")
    lines += [f"| outputs | {_text(text)} |" for text in words.outputs(report)]
    if report.whole_program is not None:
        lines += ["", _text(words.whole_program(report.whole_program))]
    return "\n".join(lines) + "\n"


def _rows(regions: list[Region]) -> list[str]:
    """The table of regions: the worst open, the rest in folds of a size that can be cut."""
    rows = [_row(number, region) for number, region in enumerate(regions, 1)]
    shown = ROWS_OPEN if len(rows) > ROWS_OPEN + 1 else len(rows)  # nobody unfolds a single row
    blocks = [_HEADER + "\n".join(rows[:shown]) + "\n"] if rows else []
    for start in range(shown, len(rows), 100):
        part = rows[start : start + 100]
        title = f"regions {start + 1} to {start + len(part)} of {len(rows)}"
        blocks.append(_fold(title, _HEADER + "\n".join(part)))
    return blocks


def _row(number: int, region: Region) -> str:
    witness = region.witness
    ulp = "-" if witness.max_ulp is None or not witness.elements else str(witness.max_ulp)
    cells = [
        str(number),
        f"{_text(words.clean(region.name, 60))} ({words.repeats(region)})",
        str(region.moved_in("training")),
        str(region.moved_in("inference")),
        _text(words.percent(witness.differing, witness.elements)),
        ulp,
        words.signs(witness.before),
        words.proof(witness),
    ]
    return "| " + " | ".join(cells) + " |"


def _details(number: int, region: Region) -> str:
    """Where and why, of one region."""
    lines = [f"**in** {', '.join(_code(module) for module in region.modules[:8]) or '-'} ({words.repeats(region)})  "]
    if region.kernels:
        lines.append(f"**kernels** {', '.join(_code(kernel) for kernel in region.kernels[:8])}  ")
    lines.append(f"**why** {words.mechanisms(region)}  ")
    if region.witness.elements:
        lines.append(f"**matters** {_text(words.bits(words.witness_bits(region.witness)))}  ")
    lines += [f"**proof** {_text(words.proof_sentence(region.witness))}", ""]
    lines += ["| value | rounded to | training | inference |", "|:--|:--|:--|:--|"]
    lines += [_moved(entry, region) for entry in region.moved[:LIST_SHOWN]]
    if len(region.moved) > LIST_SHOWN:
        lines += ["", f"and {len(region.moved) - LIST_SHOWN} more values"]
    rule = f" ({words.clean(region.rule, 60)})" if region.rule and region.rule != region.name else ""
    return _fold(f"{number}. {words.clean(region.name, 100)}{rule}: where and why", "\n".join(lines))


def _moved(entry: Moved, region: Region) -> str:
    cells = [
        _code(entry.value),
        _text(words.moved(entry, region)),
        _code(words.places(entry, "training")),
        _code(words.places(entry, "inference")),
    ]
    return "| " + " | ".join(cells) + " |"


def _advice(report: Report) -> str:
    if not report.advice:
        return ""
    lines = ["**What to do**", ""]
    for advice in report.advice[:LIST_SHOWN]:
        lines.append(
            f"- {_text(words.clean(advice.text, 600))}" + (f" {_code(advice.command)}" if advice.command else "")
        )
    return "\n".join(lines) + "\n"


def _folded_lists(report: Report) -> list[str]:
    """What backs the answer up: the whole program, what did not match, versions, notes."""
    blocks = []
    if report.whole_program is not None:
        witness = report.whole_program
        lines = [_text(words.bits(words.witness_bits(witness))) + "  "] if witness.elements else []
        blocks.append(_fold("whole program", "\n".join([*lines, _text(words.proof_sentence(witness))])))
    sides = (("inference", report.inference), ("training", report.training))
    for title, entries in (
        ("not found on the other side", [words.unmatched(entry) for entry in report.unmatched]),
        ("hidden by the other side", [words.opaque(entry) for entry in report.opaque]),
        ("not captured", words.not_captured(report)),
        ("unlike production", words.differences(report)),
        ("machine code", machine.lines(report)),
        ("versions", [f"{name}: {words.versions(side)}" for name, side in sides if side.versions]),
        ("notes", [words.clean(note, 600) for note in report.notes]),
    ):
        if entries:
            lines = [f"- {_text(entry)}" for entry in entries[:LIST_SHOWN]]
            if len(entries) > LIST_SHOWN:
                lines.append(f"- and {len(entries) - LIST_SHOWN} more")
            blocks.append(_fold(f"{title} ({len(entries)})", "\n".join(lines)))
    return blocks


def _fold(title: str, body: str) -> str:
    return f"<details><summary>{_summary(title)}</summary>\n\n{body}\n\n</details>\n"


def _summary(text: str) -> str:
    return html.escape(text).replace("@", "&#64;").replace("://", "&#58;//")


def _text(text: str) -> str:
    """Plain text: nothing in it is Markdown, HTML, a mention or a link."""
    escaped = html.escape(text, quote=False)
    for char in "\\`*_[]|~#":
        escaped = escaped.replace(char, "\\" + char)
    return escaped.replace("@", "&#64;").replace("://", "&#58;//")


def _code(text: str) -> str:
    """A code span that stays one inside a table."""
    cleaned = words.clean(text).replace("`", "'").replace("|", "\\|")
    return f"`{cleaned}`" if cleaned else "-"
