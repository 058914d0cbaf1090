"""The phrases of a report, shared by every renderer for people.

Strings in a report come from captures, which may come from anywhere: `clean` is where they lose what could steer a
terminal. Escaping for Markdown and HTML is the business of those renderers.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from graphdiff.report.model import Bits, Moved, Opaque, Output, Position, Probe, Region, Report, Side, SideName, Unmatched, Witness
from graphdiff.report.verdict import unlike_output

FIELD_LIMIT = 240
"""Characters of one string of a capture that a report for people shows."""

_VERDICT = {
    "same": "SAME: both sides round in the same places",
    "could not tell": "COULD NOT TELL: nothing on one side was found on the other",
}

_LEGEND = {
    ("train", "infer"): "values rounded on that side only",
    ("training only", "inference only"): "values rounded on that side only",
    ("changed",): "outputs of the region whose bits differ",
    ("ulp",): "the largest difference, in units in the last place",
    ("signs",): "whether the differences lean one way",
    ("proof",): "training's region with inference's roundings gives inference's bits",
}


def clean(text: str, limit: int = FIELD_LIMIT) -> str:
    """One printable line: control, format and private characters become spaces, and what is too long is cut."""
    printable = "".join(" " if unicodedata.category(char)[0] == "C" else char for char in text[: limit * 4])
    line = " ".join(printable.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def plural(count: int, one: str, many: str = "") -> str:
    """`1 region`, `7 regions`."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def percent(part: int, whole: int) -> str:
    """A share a person can compare; what is not zero never reads as zero, nor what is not all as all."""
    if not whole:
        return "-"
    share = 100 * part / whole
    if 0 < share < 0.1:
        return "<0.1 %"
    if 99.9 < share < 100:
        return ">99.9 %"
    return f"{share:.1f} %"


def side(side: Side) -> str:
    """`transformers 5.19.0 · qwen3-tiny · eager · cpu`; shapes stand in `probe`, the other versions in `versions`."""
    engine = " ".join(part for part in (side.kind, side.versions.get(side.kind, "")) if part)
    options = ", ".join(f"{name}={value}" for name, value in side.inductor.items())
    return clean(" · ".join(part for part in (engine, side.model, side.mode, side.target, options) if part))


def probe(report: Report) -> str:
    """What the report stands on, and which shapes it is about: `4 tokens, seed 0; shapes: inference dynamic, training any`."""
    one, two = (_ran(side.probe) for side in (report.inference, report.training))
    ran = one if one == two else "; ".join(f"{name} {text}" for name, text in (("inference", one), ("training", two)) if text)
    one, two = report.inference.shapes, report.training.shapes
    shapes = one if one == two else ", ".join(f"{name} {text or 'unknown'}" for name, text in (("inference", one), ("training", two)))
    return clean("; ".join(part for part in (ran, f"shapes: {shapes}" if shapes else "") if part))


def _ran(probe: Probe | None) -> str:
    if probe is None:
        return ""
    return f"{plural(probe.tokens, 'token')}, seed {probe.seed}" if probe.tokens else f"inputs of seed {probe.seed}"


def versions(side: Side) -> str:
    """Every version that took part on one side: `torch 2.13.0+cpu, vllm 0.32.0`."""
    return clean(", ".join(f"{name} {version}" for name, version in side.versions.items()))


def matched(report: Report) -> str:
    """How much of both sides the comparison saw, in one line."""
    summary, coverage = report.summary, report.coverage
    opaque = coverage.inference.opaque + coverage.training.opaque
    return (
        f"{coverage.inference.matched}/{summary.values.inference} inference, "
        f"{coverage.training.matched}/{summary.values.training} training values; "
        f"unmatched {summary.unmatched.inference}, {summary.unmatched.training}; opaque {opaque}"
    )


def not_captured(report: Report) -> list[str]:
    """What ran outside the captures, each entry with its side."""
    return _per_side(report.coverage.inference.not_captured, report.coverage.training.not_captured)


def differences(report: Report) -> list[str]:
    """How the captures depart from production, each entry with its side."""
    return _per_side(report.coverage.inference.differences, report.coverage.training.differences)


def left_out(report: Report, width: int) -> str:
    """What was not captured and how much is unlike production, in one line; both stand below in full."""
    missing, unlike = not_captured(report), differences(report)
    tail = f"; unlike production in {plural(len(unlike), 'way')}" if unlike else ""
    if not missing and not unlike:
        return ""
    room = width - len(tail) - len(" (below)")
    first = first_of(missing, room, below="") if missing else "nothing noted"
    fits = len(first) <= room and (room >= 45 or len(missing) < 2)
    return (first if fits else plural(len(missing), "part")) + tail + " (below)"


def _per_side(inference: Iterable[str], training: Iterable[str]) -> list[str]:
    return [f"inference: {clean(entry)}" for entry in inference] + [f"training: {clean(entry)}" for entry in training]


def first_of(entries: list[str], width: int = 0, below: str = ", below") -> str:
    """The first entry and how many follow, cut to `width` columns if it stands below in full."""
    more = f" (and {len(entries) - 1} more{below})" if len(entries) > 1 else ""
    first, room = entries[0], width - len(more)
    if width and len(first) > room:
        first = first[: max(room - 2, 8)].rsplit(" ", 1)[0].rstrip(" ,:;(") + " …"
    return first + more


def verdict(report: Report) -> str:
    """The one line that answers: is anything moved, and what exit status does that mean."""
    if report.verdict == "moved":
        moved = report.summary.moved
        text = f"MOVED: {plural(moved.training, 'value')} rounded in training only, {moved.inference} in inference only{_unfolded(report)}"
    elif report.verdict == "could not tell" and (unlike := unlike_output(report)):
        text = f"COULD NOT TELL: no rounding moved, but {output(unlike)}"
    elif report.verdict == "same" and rounds_nothing(report):
        text = "SAME: nothing is rounded on either side"
    elif report.verdict == "mode differs":
        text = f"MODE DIFFERS: nothing moved, but {_other_mode(report)}"
    else:
        text = _VERDICT[report.verdict]
    return f"{text}; exit status {report.exit_status}"


def _other_mode(report: Report) -> str:
    """Which rounding modes stand against each other: `1 value is rounded in another mode on each side (training to nearest
    even, inference toward zero)`."""
    entries = [entry for region in report.regions if region.kind == "rounding-mode" for entry in region.moved]
    if not entries:
        return "the rounding modes of the two sides differ"
    modes = list(dict.fromkeys(clean(entry.mode) for entry in entries if entry.mode))
    are = "value is" if len(entries) == 1 else "values are"
    return f"{len(entries)} {are} rounded in another mode on each side" + (f" ({'; '.join(modes)})" if modes else "")


def could_not_tell(report: Report) -> str:
    """One line for stderr: what is in the way of an answer, and what to do."""
    unlike = unlike_output(report)
    if unlike and unlike.how == "bits":
        return output(unlike)
    what = output(unlike) if unlike else "nothing on one side was found on the other"
    return f"{what}: compare two captures of the same computation"


def rounds_nothing(report: Report) -> bool:
    """True if neither side rounds any value: both compute in float32 throughout, or only move data."""
    rounded = report.rounded
    return rounded is not None and not (rounded.inference or rounded.training)


def output(entry: Output, *, moved: bool = False) -> str:
    """In which way one output is not the same on both sides. A rounding that moved may change a choice, and with it the
    numbers behind it."""
    if entry.inference is None or entry.training is None:
        side, number = ("training", entry.training) if entry.inference is None else ("inference", entry.inference)
        return f"output {number} of {side} has no counterpart"
    name = f"output {entry.training}" + ("" if entry.inference == entry.training else f" (inference: {entry.inference})")
    count = f"{entry.differing} of {plural(entry.elements, 'element')}"
    if entry.how == "shape":
        return f"{name} has another shape on each side: inference {_shape(entry, 'inference')}, training {_shape(entry, 'training')}"
    if entry.how == "order":
        return f"{name} holds the same numbers in another order on each side ({count} differ)"
    if entry.how == "opaque":
        return f"{name} lies behind an op that cannot be read, and was compared by its size only"
    if entry.how == "bits":
        return f"bits of {name} differ in {count} for no reason that was found"
    what = "is another computation" if not moved else "holds other numbers"
    return f"{name} {what} on each side ({count} differ before any rounding)"


def _shape(entry: Output, side: str) -> str:
    return "[" + ", ".join(map(str, entry.shape.get(side, []))) + "]"


def outputs(report: Report) -> list[str]:
    """What a reader must know of the outputs: those that are not one computation. Empty when all are well, or when the
    verdict says it already."""
    entry = unlike_output(report)
    if entry is None or report.verdict == "could not tell":
        return []
    choice = ": another choice (top-k, argmax), or another computation" if entry.how == "numbers" else ""
    return [output(entry, moved=True) + choice]


def _unfolded(report: Report) -> str:
    """` (27 over all layers)`: the same values counted in every layer, where that is another number."""
    regions = [region for region in report.regions if region.kind != "rounding-mode"]
    folded, every = [], []
    for side in ("training", "inference"):
        entries = [entry for region in regions for entry in region.moved if entry.rounded_in == side]
        folded.append(len(entries))
        every.append(sum(entry.instances for entry in entries))
    return "" if folded == every else f" ({' and '.join(str(n) for n in every if n)} over all layers)"


def whole_program(witness: Witness) -> str:
    """How much of the outputs differs now, and with inference's roundings in training, in one line."""
    if not witness.elements:
        return f"whole program: {proof_sentence(witness)}"
    text = f"whole program: {percent(witness.differing, witness.elements)} of {plural(witness.elements, 'output')} differ"
    if witness.after is None:
        return f"{text}; not checked with inference's roundings"
    text += f", {percent(witness.after.differing, witness.after.elements)} with inference's roundings"
    return text + (" (by the order of float32 operations; none in float64)" if by_order(witness) else "")


def by_order(witness: Witness) -> bool:
    """True if the bits are equal in float64 alone: float32 sums and products in another order leave their own differences."""
    return bool(witness.transplant_bitwise and witness.arithmetic == "float64" and witness.after and witness.after.differing)


def repeats(region: Region) -> str:
    """Where a region repeats: `28 layers`, `3 times`, `once`."""
    if region.instances == 1:
        return "once"
    folded = any(".*" in module for module in region.modules)
    return f"{region.instances} layers" if folded else f"{region.instances} times"


def signs(bits: Bits | None) -> str:
    """Whether the differences lean: `mixed` is noise, `one way` a bias."""
    if bits is None or bits.signed_share is None or not bits.differing:
        return "-"
    lean = abs(bits.signed_share - 0.5)
    return "mixed" if lean <= 0.15 else "leans" if lean < 0.4 else "one way"


def proof(witness: Witness) -> str:
    """The witness in one word."""
    return {True: "yes", False: "no", None: "none"}[witness.transplant_bitwise]


def proof_sentence(witness: Witness) -> str:
    """The witness in a sentence, with what is left when it failed."""
    arithmetic = f" ({clean(witness.arithmetic)})" if witness.arithmetic else ""
    if witness.transplant_bitwise is None:
        return f"not checked: {clean(witness.reason)}" if witness.reason else "not checked"
    if by_order(witness):
        return (f"with inference's roundings, training's bits are equal in float64; in float32 {witness.after.differing} of "
                f"{plural(witness.after.elements, 'output')} still differ, by the order of operations")
    if witness.transplant_bitwise:
        return f"with inference's roundings, training's bits are equal{arithmetic}"
    left = f"; {bits(witness.after)} after" if witness.after else ""
    reason = f": {clean(witness.reason)}" if witness.reason else ""
    return f"with inference's roundings, training's bits still differ{arithmetic}{left}{reason}"


def bits(bits: Bits | None) -> str:
    """`421 of 1024 outputs differ (41.1 %), by 3 ulp and 0.0312 at most, signs mixed`."""
    if bits is None:
        return ""
    text = f"{bits.differing} of {plural(bits.elements, 'output')} differ ({percent(bits.differing, bits.elements)})"
    if bits.differing:
        sizes = [f"{bits.max_ulp} ulp" if bits.max_ulp is not None else "", _number(bits.max_abs)]
        text += ", by " + " and ".join(size for size in sizes if size) + " at most" if any(sizes) else ""
        text += f", signs {signs(bits)}" if bits.signed_share is not None else ""
    text += f", {plural(bits.flips, 'discrete choice')} flipped" if bits.flips else ""
    return text + (f", {bits.nonfinite} not finite" if bits.nonfinite else "")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def witness_bits(witness: Witness) -> Bits:
    """The comparison before the transplant, also from a report that has only the flat numbers."""
    return witness.before or Bits(
        elements=witness.elements, differing=witness.differing, max_ulp=witness.max_ulp, max_abs=witness.max_abs
    )


def moved(entry: Moved, region: Region) -> str:
    """`bfloat16 in training only` or, where both sides round, `bfloat16, training to nearest even, inference toward zero`, with the share when only part of the elements are, and how often it stands in the region
    if not once in each of its layers."""
    share = "" if entry.share >= 1.0 else f" for {percent(round(entry.share * 10_000), 10_000)} of its elements"
    sure = "" if entry.confidence >= 1.0 else f", confidence {entry.confidence:.2f}"
    unit = "layers" if any(".*" in module for module in region.modules) else "places"
    some = entry.instances != region.instances
    often = f", in {entry.instances} of {region.instances} {unit}" if some and entry.instances < region.instances else f", {entry.instances} times" if some else ""
    where = f", {clean(entry.mode)}" if region.kind == "rounding-mode" and entry.mode else f" in {entry.rounded_in} only"
    return f"{clean(entry.dtype)}{where}{share}{often}{sure}"


def mechanisms(region: Region) -> str:
    """Why the roundings of a region moved: every mechanism once."""
    return ", ".join(dict.fromkeys(entry.mechanism for entry in region.moved)) or "unknown"


def short_path(path: str) -> str:
    """The path inside its package, a relative path as it is or, for other files, the last three parts."""
    parts = clean(path).replace("\\", "/").split("/")
    if "site-packages" in parts:
        return "/".join(parts[len(parts) - parts[::-1].index("site-packages") :])
    return "/".join(parts[-3:] if parts[0] == "" or ":" in parts[0] else parts)


def source(position: Position) -> str:
    """`transformers/models/qwen3/modeling_qwen3.py:63:34`, columns counted from 1 as editors do."""
    if position.file is None:
        return ""
    text = short_path(position.file)
    if position.line is not None:
        text += f":{position.line}"
        text += f":{position.column + 1}" if position.column is not None else ""
    return text


def place(position: Position) -> str:
    """Where one side computes a value: its source line and text, else its kernel and node."""
    kernel = clean(position.kernel, 100)
    parts = [source(position), clean(position.text, 100), f"kernel {kernel}" if kernel else ""]
    if not any(parts):
        return clean(position.node) or "position unknown"
    return "  ".join(part for part in parts if part)


def places(entry: Moved, side: SideName) -> str:
    """Where one side rounds a moved value, and where it forms it if that is elsewhere; the other side only forms it."""
    here = entry.training if side == "training" else entry.inference
    formed = entry.formed_in(side)
    if (formed.file, formed.line, formed.column) == (here.file, here.line, here.column):
        return place(here)
    origin = source(formed)
    if formed.file == here.file:
        origin = origin.rpartition("/")[2]
    return f"rounded at {place(here)}, formed at {'  '.join(part for part in (origin, clean(formed.text, 100)) if part) or place(formed)}"


def unmatched(entry: Unmatched) -> str:
    """One value that the other side never forms."""
    where = source(Position(file=entry.file, line=entry.line))
    parts = [
        clean(entry.op or entry.node),
        clean(entry.module),
        where,
        f"{entry.count} times" if entry.count > 1 else "",
    ]
    return f"{entry.side}: " + ", ".join(part for part in parts if part)


def opaque(entry: Opaque) -> str:
    """One value that the other side hides."""
    parts = [
        clean(entry.value),
        clean(entry.module),
        clean(entry.why),
        f"{entry.count} times" if entry.count > 1 else "",
    ]
    return f"{entry.side}: " + ", ".join(part for part in parts if part)


def legend(columns: Iterable[str]) -> str:
    """What these columns of the region table mean."""
    shown = set(columns)
    return "; ".join(f"{', '.join(names)}: {meaning}" for names, meaning in _LEGEND.items() if shown >= set(names)) + "."
