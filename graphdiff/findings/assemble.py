"""Writes what comparing found into a report (report/model.py)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from graphdiff import __version__
from graphdiff.compare.diff import Diff, Direction
from graphdiff.compare.outputs import check_outputs, unexplained
from graphdiff.compare.overlap import held_together
from graphdiff.compare.side import MODE_SEPARATOR, Side, base_format
from graphdiff.compare.transplant import Bench
from graphdiff.compare.values import share_of
from graphdiff.compare.witness import BitCount, Proof, prove_program, prove_region
from graphdiff.findings.positions import mechanism, other_position, position, rounding_node, value_node
from graphdiff.findings.regions import Entry, Folded, find_regions, fold, fold_path
from graphdiff.report import model, words
from graphdiff.report.verdict import unlike_output

MOST_UNMATCHED = 200


def report_of(diff: Diff, bench: Bench, sides: tuple[model.Side, model.Side], coverage: model.Coverage,
              notes: list[str], name_values: Any) -> model.Report:
    """The report of one comparison. `sides`: inference, training; `coverage` carries what the captures left out."""
    regions = [_region(i, folded, diff, bench) for i, folded in enumerate(fold(find_regions(diff, name_values)))]
    regions += _mode_regions(diff, bench, len(regions))
    _tell_apart(regions)
    regions.sort(key=_weight, reverse=True)
    for i, region in enumerate(regions):
        region.id = f"r{i + 1}"
    matched, values, unmatched = _counts(diff, coverage)
    report = model.Report(
        graphdiff=__version__, inference=sides[0], training=sides[1],
        summary=model.Summary(values=values, matched=matched, unmatched=unmatched, regions=len(regions), moved=model.Count(
            inference=sum(r.moved_in("inference") for r in regions),
            training=sum(r.moved_in("training") for r in regions))),
        regions=regions, unmatched=_unmatched(diff), notes=[*notes, *_mode_notes(diff), *_unplaced_notes(diff)],
        coverage=coverage, opaque=[*_opaque(diff.training, "training"), *_opaque(diff.inference, "inference")],
        whole_program=_witness(prove_program(bench)), rounded=_rounded(diff))
    if any(r.kind == "rounding-mode" for r in regions) and not (report.summary.moved.inference or report.summary.moved.training):
        report.verdict = "mode differs"
    report.outputs = _outputs(diff, bench, report.whole_program)
    report.notes += _output_notes(report)
    report.advice = _advice(report)
    return report


def _tell_apart(regions: list[model.Region]) -> None:
    """Regions of one title get the last part of the module they are in: `q/k norm and RoPE: q_norm`."""
    titles = Counter(r.title for r in regions)
    for region in regions:
        inside = [m for m in region.modules if not m.endswith("*")]
        if titles[region.title] > 1 and inside:
            region.title += ": " + max(inside, key=lambda m: m.count(".")).rsplit(".", 1)[-1]
    titles = Counter(r.title for r in regions)
    for region in regions:
        if titles[region.title] > 1 and region.moved:
            region.title += f" ({region.moved[0].value})"


def _weight(region: model.Region) -> tuple:
    """Worst first: share of output elements that change, then how many values moved."""
    w = region.witness
    return (w.differing / w.elements if w.elements else 0.0, len(region.moved), region.instances)


# ---- regions
def _region(i: int, folded: Folded, diff: Diff, bench: Bench) -> model.Region:
    first = folded.first
    moved = _moved(folded, diff)
    reads = [m for e in first.entries for m in e.value.reads]
    proof = prove_region(bench, reads)
    modules = sorted({e.module for e in moved if e.module})
    kernels = sorted({e.inference.kernel for e in moved if e.inference.kernel and not e.inference.kernel.startswith("aten.")})
    return model.Region(id=f"r{i}", rule=first.rule, kind=first.kind, title=first.title, modules=modules,
                        instances=len(folded.instances), kernels=kernels, moved=moved, witness=_witness(proof))


def _moved(folded: Folded, diff: Diff) -> list[model.Moved]:
    """Entries of all instances, those that differ in the layer alone folded with a count."""
    found: dict[Any, model.Moved] = {}
    for region in folded.instances:
        here: Counter = Counter()
        for entry in region.entries:
            made = _entry(entry, diff)
            own = made.formed
            key = (made.value, made.rounded_in, made.dtype, made.mode, fold_path(made.module), own.file, own.line, own.column)
            # The n-th of several alike in one layer folds with the n-th of the next.
            layer = (key, _module_path(entry, diff))
            here[layer] += 1
            if (*key, here[layer]) in found:
                found[(*key, here[layer])].instances += 1
            else:
                found[(*key, here[layer])] = made
    return list(found.values())


def _module_path(entry: Entry, diff: Diff) -> str:
    """Where an entry's value is formed, with its layer number."""
    direction = diff.training if entry.rounded_in == "training" else diff.inference
    return _module(direction, entry.value, value_node(direction.side, entry.value.reads[0]))


def _entry(entry: Entry, diff: Diff) -> model.Moved:
    direction = diff.training if entry.rounded_in == "training" else diff.inference
    side, value = direction.side, entry.value
    read = value.reads[0]
    node = value_node(side, read)
    here = position(side, rounding_node(side, read))
    formed = position(side, node) if side.program.nodes[node].kind != "leaf" else here
    there = other_position(direction, value)
    dtype, _, mode = value.event.partition(MODE_SEPARATOR)
    module = fold_path(_module(direction, value, node))
    return model.Moved(
        value=entry.naming.value, rounded_in=entry.rounded_in, dtype=dtype, mode=mode, module=module, formed=formed,
        inference=there if entry.rounded_in == "training" else here, training=here if entry.rounded_in == "training" else there,
        mechanism=mechanism(direction, value), share=round(share_of(direction.pairing, value), 3),
        confidence=_confidence(direction, value), read_by=_read_by(side, value))


def _module(direction: Direction, value: Any, node: int) -> str:
    module = direction.side.program.site(node).module
    if module and not direction.side.program.site(node).code:
        return module  # not generated code: its modules are named as in the checkpoint
    for read in value.reads:
        for n in (*read.other_nodes, *(direction.pairing.other.consumer[r] for r in read.other_rows)):
            if n >= 0 and direction.pairing.other.program.site(n).module:
                return direction.pairing.other.program.site(n).module
    return module


def _confidence(direction: Direction, value: Any) -> float:
    """How much of the value's sample the other side's reads hold together (it may read it in parts); 1 where the other
    side never forms it."""
    own, other = direction.side, direction.pairing.other
    covers = [held_together(own, m.sketch, other, [other.sketch[r] for r in m.other_rows]) if m.other_rows else 1.0
              for m in value.reads]
    return round(max(covers), 3)


def _read_by(side: Side, value: Any) -> list[str]:
    names = []
    for row in value.rows():
        consumer = side.consumer[row]
        if consumer < 0:
            names.append(side.program.outputs[-1 - consumer].name)
        else:
            site = side.program.site(consumer)
            names.append(site.text or f"{side.program.nodes[consumer].op} {site.kernel} {site.name}".strip())
    return list(dict.fromkeys(names))


def _witness(proof: Proof) -> model.Witness:
    before = _bits(proof.before) if proof.before is not None else None
    after = _bits(proof.after) if proof.after is not None else None
    flat = before or model.Bits()
    return model.Witness(transplant_bitwise=proof.bitwise, elements=flat.elements, differing=flat.differing, max_ulp=flat.max_ulp,
                         max_abs=flat.max_abs, arithmetic=proof.arithmetic, before=before, after=after, reason=proof.reason)


def _bits(count: BitCount) -> model.Bits:
    return model.Bits(elements=count.elements, differing=count.differing, max_ulp=count.max_ulp, max_abs=count.max_abs,
                      signed_share=round(count.greater / count.differing, 3) if count.differing else None, nonfinite=count.nonfinite,
                      flips=count.flips)


# ---- rounding modes
def _mode_regions(diff: Diff, bench: Bench, start: int) -> list[model.Region]:
    """A cast in the same place in another mode: a finding of its own, no moved rounding."""
    regions: dict[Any, model.Region] = {}
    for m in diff.training.verdicts.mode:
        side, other = diff.training.side, diff.inference.side
        node = value_node(side, m)
        theirs = next((e for r in m.other_rows for e in other.events(r) if base_format(e) == base_format(m.event)), m.event)
        entry = model.Moved(
            value=side.program.site(node).text or side.program.nodes[node].op, rounded_in="training", dtype=base_format(m.event),
            mode=f"training {_mode(m.event)}, inference {_mode(theirs)}", module=fold_path(side.program.site(node).module),
            formed=position(side, node), training=position(side, rounding_node(side, m)), inference=position(other, other.operand(m.other_rows[0]).nodes[0]),
            mechanism="rounding mode", read_by=_read_by(side, _One([m])))
        key = (entry.value, entry.mode, entry.module, entry.formed.line, entry.formed.column)
        if key in regions:
            regions[key].instances += 1
            regions[key].moved[0].instances += 1
            continue
        proof = prove_region(bench, [m])
        regions[key] = model.Region(id=f"m{start}", rule="rounding-mode", kind="rounding-mode", title="rounding mode differs",
                                    modules=[entry.module] if entry.module else [], moved=[entry], witness=_witness(proof))
    return list(regions.values())


class _One:
    """A value made of given reads (no grouping needed)."""

    def __init__(self, reads: list) -> None:
        self.reads = reads

    def rows(self) -> list[int]:
        return [m.row for m in self.reads]


def _mode(event: str) -> str:
    return {"": "to nearest even", "rna": "to nearest, ties away", "rz": "toward zero", "up": "up", "down": "down", "stochastic": "stochastic"}[event.partition(MODE_SEPARATOR)[2]]


def _mode_notes(diff: Diff) -> list[str]:
    count = len(diff.training.verdicts.mode)
    return [f"rounding mode differs in {count} read{'s' if count != 1 else ''}: same place, other bits"] if count else []


def _unplaced_notes(diff: Diff) -> list[str]:
    notes = []
    for name, direction in (("training", diff.training), ("inference", diff.inference)):
        for reads, why in ((direction.verdicts.unplaced, "have no counterpart read on the other side although it rounds the value too: not judged"),
                           (direction.verdicts.alike, "hold other numbers on the other side, which rounds them in the same place: not moved")):
            sites = [direction.side.program.site(value_node(direction.side, m)) for m in reads]
            names = {fold_path(site.module) or site.text for site in sites} - {""}
            if reads:
                notes.append(f"{len(reads)} rounded read{'s' if len(reads) != 1 else ''} of {name} {why} ({', '.join(sorted(names)[:4])})")
    return notes


# ---- outputs
def _outputs(diff: Diff, bench: Bench, whole: model.Witness | None) -> list[model.Output]:
    """Whether each output is one computation on both sides; bits that differ though nothing moved need a reason."""
    checks = check_outputs(bench)
    if diff.empty and whole is not None and whole.transplant_bitwise is False and (odd := unexplained(bench)):
        checks = [odd if (c.inference, c.training) == (odd.inference, odd.training) else c for c in checks]
    programs = {"inference": diff.inference.side.program, "training": diff.training.side.program}
    return [model.Output(
        inference=c.inference, training=c.training, same=c.same, elements=c.elements, differing=c.differing, how=c.how,
        shape={name: list(program.outputs[i].operand.shape) for name, program in programs.items()
               if (i := getattr(c, name)) is not None}) for c in checks]


def _output_notes(report: model.Report) -> list[str]:
    notes = []
    for name, other in (("inference", "training"), ("training", "inference")):
        extra = [getattr(o, name) for o in report.outputs if getattr(o, other) is None]
        if extra:
            some = ", ".join(map(str, extra[:6])) + (", ..." if len(extra) > 6 else "")
            notes.append(f"{name} has {len(extra)} output{'s' if len(extra) != 1 else ''} that {other} has not (number {some}): not compared")
    moved = [(o.inference, o.training) for o in report.outputs if o.same and o.inference != o.training]
    if moved:
        notes.append("outputs stand in another order on each side (inference, training): " + ", ".join(map(str, moved[:6])))
    return notes + [words.output(o) for o in report.outputs if o.how == "opaque"]


def _rounded(diff: Diff) -> model.Count | None:
    """Distinct values that a side rounds somewhere; None beside an op that cannot be read, which may round inside."""
    if any(node.kind == "opaque" for d in (diff.inference, diff.training) for node in d.side.program.nodes):
        return None
    sides = [{d.side.sketch[r] for r in range(len(d.side.consumer)) if d.side.events(r)} for d in (diff.inference, diff.training)]
    return model.Count(inference=len(sides[0]), training=len(sides[1]))


# ---- coverage
def _counts(diff: Diff, coverage: model.Coverage) -> tuple[int, model.Count, model.Count]:
    numbers = {}
    for name, direction in (("inference", diff.inference), ("training", diff.training)):
        side = direction.side
        sketches = {side.value(c) for c in side.consumers if side.value(c) >= 0}
        matched = {s for s in sketches if direction.pairing.partners(s)}
        sketches -= {side.value(n) for n in side.consumers if direction.pairing.is_partial(n)} - matched
        hidden = {side.value(n) for n in direction.hidden if side.value(n) in sketches} - matched
        numbers[name] = (len(sketches), len(matched), len(hidden))
        target = getattr(coverage, name)
        target.values, target.matched, target.opaque = len(sketches), len(matched), len(hidden)
        target.unmatched = len(sketches) - len(matched) - len(hidden)
    return (numbers["training"][1], model.Count(inference=numbers["inference"][0], training=numbers["training"][0]),
            model.Count(inference=coverage.inference.unmatched, training=coverage.training.unmatched))


def _unmatched(diff: Diff) -> list[model.Unmatched]:
    found: Counter = Counter()
    shown: dict[Any, model.Unmatched] = {}
    for name, direction in (("inference", diff.inference), ("training", diff.training)):
        side = direction.side
        for c in side.consumers:
            sketch = side.value(c)
            if sketch < 0 or direction.pairing.partners(sketch) or c in direction.hidden or direction.pairing.is_partial(c):
                continue
            site, node = side.program.site(c), side.program.nodes[c]
            here = position(side, c)
            module = fold_path(site.module)
            key = (name, node.op, module, here.file if module else (here.file, here.kernel), here.line, here.column, None if module else site.name)
            found[key] += 1
            shown.setdefault(key, model.Unmatched(side=name, node=here.node, op=node.op, module=module, file=here.file, line=here.line))
    for key, count in found.items():
        shown[key].count = count
    return list(shown.values())[:MOST_UNMATCHED]


def _opaque(direction: Direction, name: str) -> list[model.Opaque]:
    side = direction.side
    found: dict[Any, model.Opaque] = {}
    for m in direction.verdicts.opaque:
        node = value_node(side, m)
        site = side.program.site(node)
        consumer = side.consumer[m.row]
        hider = direction.pairing.other.program.nodes[direction.hidden[consumer]] if consumer in direction.hidden else None
        why = f"inside {hider.attrs.get('name', hider.op)} on the other side" if hider else ""
        key = (site.text or side.program.nodes[node].op, fold_path(site.module), why)
        if key in found:
            found[key].count += 1
        else:
            found[key] = model.Opaque(side=name, value=key[0], module=key[1], why=why)
    return list(found.values())


def _advice(report: model.Report) -> list[model.Advice]:
    """What to do, most useful first; empty where nothing was found."""
    advice = []
    if report.summary.moved.training or report.summary.moved.inference:
        if report.inference.kind == "vllm" and report.training.kind == "transformers":
            advice.append(_patch(report))
        else:
            advice.append(model.Advice(text="make training round where inference rounds, value by value as listed below"))
        names = sorted({r.rule for r in report.regions if r.rule and r.rule != "rounding-mode"})
        if names:
            advice.append(model.Advice(text="why the two stacks differ there: " + ", ".join(names), command=f"graphdiff rules show {names[0]}"))
        advice.append(model.Advice(text="or accept it: --fail-on never reports the same and ends with status 0"))
    elif unlike := unlike_output(report):
        advice.append(model.Advice(text=_MAKE_ALIKE.get(unlike.how, _MAKE_ALIKE["numbers"])))
    if report.verdict == "mode differs":
        advice.append(model.Advice(text="the casts stand in the same places; make both sides round to nearest even"))
    return advice


_MAKE_ALIKE = {
    "numbers": "make both sides one computation: the same constants (eps, scale), masks and inputs, dropout off on both; the values "
               "that only one side forms are listed below",
    "order": "return the elements of the output in the same order on both sides",
    "shape": "return the same outputs, of the same shapes, from both sides",
    "bits": "look at the values that only one side forms and at the notes; if there are none, please report the two captures as a bug",
}


def _patch(report: model.Report) -> model.Advice:
    """The patch command for these two sides; live operands must be captured to files first."""
    files = [side.source if side.source and ":" not in side.source else f"{name}.capture"
             for name, side in (("engine", report.inference), ("trainer", report.training))]
    live = any(":" in side.source for side in (report.inference, report.training))
    text = "make the trainer round where the engine rounds, with a patch module" + (" (capture both sides to files first)" if live else "")
    return model.Advice(text=text, command=f"graphdiff patch {files[0]} {files[1]} -o patch")
