"""The report as data: JSON schema 1, the one thing every renderer reads.

Keys are only ever added. A key that is unknown is `null`, never left out: a reader may index without asking.
Floats that are not finite cannot stand in JSON and become `null`; counts of them are kept beside (`nonfinite`).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from graphdiff.errors import GraphdiffError

SCHEMA = 1

SideName = Literal["inference", "training"]

Verdict = Literal["moved", "same", "mode differs", "could not tell"]

Mechanism = Literal[
    "fused into one kernel",
    "store reused from a register",
    "recomputed from inputs",
    "graph rewrite",
    "custom op",
    "table dtype",
    "constant dtype",
    "rounding mode",
    "unknown",
]


class Probe(msgspec.Struct, kw_only=True):
    """What both sides were run on: tokens of a model's prompt (0: a function, whose inputs are made from the seed), and the
    seed of made-up weights and inputs."""

    tokens: int = 0
    seed: int = 0


class Side(msgspec.Struct, kw_only=True):
    """What ran on one side.

    `kind` is the sort of capture (`vllm`, `transformers`, `function`), `mode` how it was compiled or that it was not,
    `target` what its kernels are for, `shapes` the bucket its schedule holds for (`dynamic` or `any`, `1 token`, `of the
    inputs`), `inductor` the options that Inductor was given, `probe` the evidence that the report stands on.
    """

    kind: str
    model: str
    versions: dict[str, str] = {}
    mode: str = ""
    target: str = ""
    shapes: str = ""
    inductor: dict[str, bool | int | float | str | None] = {}
    source: str = ""
    probe: Probe | None = None


class Count(msgspec.Struct, kw_only=True):
    """One number per side."""

    inference: int = 0
    training: int = 0


class Summary(msgspec.Struct, kw_only=True):
    """Distinct values and moved roundings; layers, heads and elements that repeat one are not counted again.

    `matched` counts training's values; `coverage` has the counts of both sides.
    `moved.training` are values that only training rounds, `moved.inference` those that only inference rounds.
    """

    values: Count
    matched: int
    unmatched: Count
    regions: int
    moved: Count


class Output(msgspec.Struct, kw_only=True):
    """One output of both sides, by position, or of one side alone (the other is null).

    `same` says whether it is the same computation on both sides, by its numbers before any rounding; null: not judged.
    If not, `differing` of its elements are other numbers and `how` says in which way: another `shape`, the same numbers in
    another `order`, other `numbers`; `opaque`: behind an op that cannot be read; `bits`: equal numbers whose bits differ
    for no reason that was found.
    """

    inference: int | None = None
    training: int | None = None
    shape: dict[str, list[int]] = {}
    same: bool | None = None
    elements: int = 0
    differing: int = 0
    how: Literal["", "shape", "order", "numbers", "opaque", "bits"] = ""


class Position(msgspec.Struct, kw_only=True):
    """Where one side computes or rounds a value: its node, its kernel if it has one, and the source line. Paths are those
    inside a package (`vllm/...`, `transformers/...`) wherever it is installed.

    `column` and `end_column` count characters from 0, the end is excluded; `text` is the source text between them.
    """

    node: str = ""
    kernel: str = ""
    file: str | None = None
    line: int | None = None
    column: int | None = None
    end_column: int | None = None
    text: str = ""


class Moved(msgspec.Struct, kw_only=True):
    """One value that is rounded on one side only.

    The position on the side `rounded_in` is the op that rounds; `formed` is where that side computes the value: another
    line where a cast rounds it later. The position on the other side is where that one computes it.

    `module` is the module path with layer numbers folded (`model.layers.*.self_attn.q_norm`) and `instances` how often
    the value stands in the program. `share` is the part of its elements that only one side rounds (1.0: all of them).
    `mode` names the rounding mode of each side where both round the value in the same place, and that is all that differs
    (`training to nearest even, inference toward zero`); then `rounded_in` only says from which side it was seen.
    `read_by` names the reads that see the difference. `confidence`, 0 to 1, says how sure the pairing is.
    """

    value: str
    rounded_in: SideName
    dtype: str
    inference: Position = msgspec.field(default_factory=Position)
    training: Position = msgspec.field(default_factory=Position)
    formed: Position = msgspec.field(default_factory=Position)
    module: str = ""
    instances: int = 1
    mechanism: Mechanism = "unknown"
    share: float = 1.0
    confidence: float = 1.0
    read_by: list[str] = []
    mode: str = ""

    def formed_in(self, side: SideName) -> Position:
        """Where that side computes the value, wherever it is rounded."""
        own = self.formed if side == self.rounded_in and self.formed != Position() else None
        return own or (self.training if side == "training" else self.inference)


class Bits(msgspec.Struct, kw_only=True):
    """Two outputs, compared bit for bit.

    `signed_share` is the part of the differing elements where inference is the greater one: near 0.5 is noise, near 0
    or 1 a bias. `flips` counts differing discrete outputs (a chosen expert, a mask bit).
    """

    elements: int = 0
    differing: int = 0
    max_ulp: int | None = None
    max_abs: float | None = None
    signed_share: float | None = None
    nonfinite: int = 0
    flips: int = 0


class Witness(msgspec.Struct, kw_only=True):
    """The region run both ways on the same inputs.

    The flat numbers are those of `before`: each side under its own rounding schedule. `after` gives the training
    region inference's schedule. `transplant_bitwise` is null when the witness could not be run; `reason` says why.
    """

    transplant_bitwise: bool | None = None
    elements: int = 0
    differing: int = 0
    max_ulp: int | None = None
    max_abs: float | None = None
    arithmetic: str = ""
    before: Bits | None = None
    after: Bits | None = None
    reason: str = ""

    @classmethod
    def of(cls, before: Bits, after: Bits | None, *, arithmetic: str = "float32", reason: str = "") -> Witness:
        """The witness of two comparisons; proven when nothing differs after the transplant."""
        return cls(
            transplant_bitwise=None if after is None else after.differing == 0,
            elements=before.elements,
            differing=before.differing,
            max_ulp=before.max_ulp,
            max_abs=before.max_abs,
            arithmetic=arithmetic,
            before=before,
            after=after,
            reason=reason,
        )


class Region(msgspec.Struct, kw_only=True):
    """A connected piece of the matched program that holds moved roundings.

    `rule` names the rule that recognised it, or is null; `title` is the name a person reads either way.
    """

    id: str
    rule: str | None = None
    kind: str = ""
    modules: list[str] = []
    instances: int = 1
    kernels: list[str] = []
    moved: list[Moved] = []
    witness: Witness = msgspec.field(default_factory=Witness)
    title: str = ""

    @property
    def name(self) -> str:
        """What to call the region in a list; one that no rule names is called by where it is."""
        return self.title or self.rule or f"unnamed, {self.modules[-1] if self.modules else self.id}"

    def moved_in(self, side: SideName) -> int:
        """How many of its values are rounded on that side only: none where both round, in two modes."""
        return 0 if self.kind == "rounding-mode" else sum(entry.rounded_in == side for entry in self.moved)


class Unmatched(msgspec.Struct, kw_only=True):
    """A value of one side that the other never forms. `count` folds layers."""

    side: SideName
    node: str
    op: str = ""
    module: str = ""
    file: str | None = None
    line: int | None = None
    count: int = 1


class Opaque(msgspec.Struct, kw_only=True):
    """A value that one side computes where the other hides it in a kernel that cannot be read (attention)."""

    side: SideName
    value: str
    module: str = ""
    why: str = ""
    count: int = 1


class SideCoverage(msgspec.Struct, kw_only=True):
    """How much of one side the comparison saw.

    `not_captured` lists what ran outside the capture, `differences` how it departs from what would run in production
    (kernels for a GPU compiled without one, fewer layers than the model has).
    """

    values: int = 0
    matched: int = 0
    unmatched: int = 0
    opaque: int = 0
    not_captured: list[str] = []
    differences: list[str] = []


class Coverage(msgspec.Struct, kw_only=True):
    """What was compared, per side."""

    inference: SideCoverage = msgspec.field(default_factory=SideCoverage)
    training: SideCoverage = msgspec.field(default_factory=SideCoverage)


class Advice(msgspec.Struct, kw_only=True):
    """One thing to do, in words, with the command that does it if there is one."""

    text: str
    command: str = ""


MachineVerdict = Literal["agrees", "rounding deleted", "could not tell", "not checked"]


class MachineRounding(msgspec.Struct, kw_only=True):
    """A value that a kernel rounds, by its lines in the generated code, and what the machine code does about it.

    `elements` is what one thread rounds there by itself. `state`: `there`, `copy` (a value that the format holds is moved
    and nothing is rounded), `deleted` (contraction took it away; `fix` says what to do), `unknown`.
    """

    names: list[str]
    lines: list[int]
    dtype: str
    elements: int = 0
    state: Literal["there", "copy", "deleted", "unknown"] = "unknown"
    fix: str = ""


class MachineKernel(msgspec.Struct, kw_only=True):
    """A kernel compiled for its target with no GPU. `ptx` and `sass` count elements that one thread rounds, by
    instruction; `blocks` are the block sizes it was compiled with, and registers, spills and stack are of those."""

    kernel: str
    pieces: list[str] = []
    target: str = ""
    verdict: MachineVerdict = "not checked"
    reason: str = ""
    roundings: list[MachineRounding] = []
    ptx: dict[str, int] = {}
    sass: dict[str, int] = {}
    registers: int | None = None
    spills: int | None = None
    stack: int | None = None
    blocks: dict[str, int] = {}


class Report(msgspec.Struct, kw_only=True):
    """Everything one comparison found. `verdict` and `exit_status` are filled by `graphdiff.report.verdict`."""

    schema: int = SCHEMA
    graphdiff: str
    inference: Side
    training: Side
    summary: Summary
    regions: list[Region] = []
    unmatched: list[Unmatched] = []
    notes: list[str] = []
    verdict: Verdict = "could not tell"
    exit_status: int = 2
    coverage: Coverage = msgspec.field(default_factory=Coverage)
    opaque: list[Opaque] = []
    whole_program: Witness | None = None
    outputs: list[Output] = []
    """Whether the two sides are one computation at all."""
    rounded: Count | None = None
    """Distinct values that each side rounds at all; null where an op that cannot be read may round more."""
    advice: list[Advice] = []
    hardware: list[MachineKernel] | None = None
    """With --ptx only: inference's kernels against their machine code."""


def encode(report: Report) -> bytes:
    """The report as indented JSON. The same report is the same bytes: keys stand in the order of the schema."""
    return msgspec.json.format(msgspec.json.encode(report, order="deterministic"), indent=2) + b"\n"


def decode(data: bytes, *, where: str = "") -> Report:
    """The report in these bytes; `where` names the file in the error."""
    try:
        report = msgspec.json.decode(data, type=Report)
    except (msgspec.DecodeError, RecursionError) as error:
        raise GraphdiffError(f"not a graphdiff report: {error}", where=where, fix="give a report.json") from error
    if report.schema != SCHEMA:
        raise GraphdiffError(
            f"report schema {report.schema} is not {SCHEMA}", where=where, fix="make the report again with this version"
        )
    return report
