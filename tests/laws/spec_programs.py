"""Random programs with known schedules: a skeleton of steps, a schedule by read, and many spellings of the two.

A `Skeleton` says what is computed; a schedule says which reads take a rounded copy of their value; a `Spelling` says how
the same thing is written. `build` makes a program of the three, `expected` the moved values by definition.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from graphdiff.probe import probe
from graphdiff.program import Builder, Elements, Evaluation, Program, Site
from graphdiff.program.dtypes import encode_bfloat16
from graphdiff.store import Capture, CaptureInfo

T, D = 4, 16
COMMUTES = ("add", "mul")
REDUCES = ("sum", "amax")

# A view is data movement, a sign or a power of two on one value: rounding commutes with it.
VIEWS = ("same", "neg", "half", "rotated", "low", "high", "first")
"""As is; -x; 0.5 * x; cat(-x[:, 8:], x[:, :8]); x[:, :8]; x[:, 8:]; x[:, :1]."""


@dataclass(frozen=True)
class Read:
    """value: a step's number, or -1 - i for leaf i; None with `constant`."""

    value: int | None
    view: str = "same"
    constant: float = 0.0


@dataclass(frozen=True)
class Step:
    op: str
    reads: tuple[Read, ...]
    shape: tuple[int, int]


@dataclass
class Skeleton:
    """leaves: (name, format, shape). outputs: values read by outputs, in order."""

    leaves: list[tuple[str, str, tuple[int, int]]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    seed: int = 0

    def shape(self, value: int) -> tuple[int, int]:
        return self.steps[value].shape if value >= 0 else self.leaves[-1 - value][2]

    def reads(self) -> list[tuple[int, int]]:
        """(consumer, value) pairs; consumer -1 - i is output i."""
        found = {(i, r.value) for i, s in enumerate(self.steps) for r in s.reads if r.value is not None}
        return sorted(found | {(-1 - i, v) for i, v in enumerate(self.outputs)})


Schedule = dict[tuple[int, int], tuple[str, ...]]
"""(consumer, value) -> roundings its copy has been through."""


def view_shape(shape: tuple[int, int], view: str) -> tuple[int, int]:
    return (shape[0], {"low": D // 2, "high": D // 2, "first": 1}.get(view, shape[1]))


# ---- skeletons
class Maker:
    """Appends steps; equal steps are one."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.s = rng, Skeleton(seed=rng.randrange(1 << 30))
        self.known: dict[tuple, int] = {}

    def leaf(self, name: str, dtype: str, shape: tuple[int, int]) -> int:
        self.s.leaves.append((name, dtype, shape))
        return -len(self.s.leaves)

    def step(self, op: str, *reads: Read | int | float, shape: tuple[int, int] | None = None) -> int:
        full = tuple(r if isinstance(r, Read) else Read(None, constant=r) if isinstance(r, float) else Read(r) for r in reads)
        if shape is None:
            shapes = [view_shape(self.s.shape(r.value), r.view) if r.value is not None else (1, 1) for r in full]
            shape = tuple(np.broadcast_shapes(*shapes))
            if op in REDUCES:
                shape = (shape[0], 1)
        key = (op, tuple(sorted(map(repr, full))) if op in COMMUTES else full)
        if key not in self.known:
            self.known[key] = len(self.s.steps)
            self.s.steps.append(Step(op, full, shape))
        return self.known[key]

    # templates
    def rmsnorm(self, x: int, w: int) -> int:
        total = self.step("sum", self.step("mul", x, x))
        r = self.step("rsqrt", self.step("add", Read(total, "half"), 1e-3))
        return self.step("mul", self.step("mul", x, r), w)

    def silu(self, x: int) -> int:
        return self.step("div", x, self.step("add", self.step("exp", Read(x, "neg")), 1.0))

    def glu(self, gate: int, up: int) -> int:
        return self.step("mul", self.silu(gate), up)

    def rope(self, x: int, cos: int, sin: int) -> int:
        return self.step("add", self.step("mul", x, cos), self.step("mul", Read(x, "rotated"), sin))

    def softmax(self, x: int) -> int:
        e = self.step("exp", x)
        return self.step("div", e, self.step("sum", e))

    def tail(self, x: int) -> int:
        return self.step("sub", Read(x, "first"), self.step("log", self.step("sum", self.step("exp", x))))


def random_skeleton(seed: int, size: int) -> Skeleton:
    """`size` random steps or templates over a few leaves; everything is live."""
    rng = random.Random(seed)
    m = Maker(rng)
    wide = [m.leaf("x", "bfloat16", (T, D)), m.leaf("y", rng.choice(["bfloat16", "float32"]), (T, D))]
    w, cos, sin = m.leaf("w", "bfloat16", (1, D)), m.leaf("cos", "float32", (T, D)), m.leaf("sin", "float32", (T, D))
    weight = m.leaf("proj", "bfloat16", (D, D))
    for _ in range(size):
        x = rng.choice(wide[-4:])
        y = rng.choice([v for v in wide if v != x])
        kind = rng.randrange(12)
        if kind == 0:
            wide.append(m.rmsnorm(x, w))
        elif kind == 1:
            wide.append(m.rope(x, cos, sin))
        elif kind == 2:
            wide.append(m.glu(x, y))
        elif kind == 3:
            wide.append(m.softmax(m.step("tanh", x)))
        elif kind == 4:
            m.tail(m.step("tanh", x))
        elif kind == 5:
            wide.append(m.step("mm", x, weight, shape=(T, D)))
        elif kind == 6:
            wide.append(m.step("tanh", Read(x, rng.choice(["same", "rotated", "neg", "half"]))))
        elif kind == 7:
            made = [v for v in wide if v >= 0]  # halves of one leaf are two values: what a checkpoint merged
            if len(made) > 1:
                m.step("mul", Read(made[-1], "low"), Read(made[-2], "high"))
        else:
            wide.append(m.step(rng.choice(["add", "add", "mul", "sub"]), Read(x, rng.choice(["same", "same", "half", "rotated"])), y))
    # What is only read in parts is an output too: a value of which half is dead is another value.
    read = {r.value for s in m.s.steps for r in s.reads if r.view not in ("low", "high", "first")}
    m.s.outputs = [i for i in range(len(m.s.steps)) if i not in read or rng.random() < 0.1]
    return m.s


def random_schedule(s: Skeleton, rng: random.Random) -> Schedule:
    """Per value: nowhere, for every reader, or for some of them."""
    schedule: Schedule = {}
    for value in sorted({v for _, v in s.reads()}):
        readers = [r for r in s.reads() if r[1] == value]
        how = rng.choice(["none", "none", "all", "all", "some"])
        chain = (rng.choice(["bfloat16"] * 8 + ["float16"]),)
        for r in readers:
            if how == "all" or how == "some" and rng.random() < 0.5:
                schedule[r] = chain
    return schedule


# ---- spellings
@dataclass(frozen=True)
class Spelling:
    """How a skeleton is written down. The empty one is the plain one."""

    rename: bool = False
    reorder: int = 0
    transpose: bool = False
    commute: bool = False
    split: bool = False
    merge: bool = False
    lossless: bool = False
    recompute: bool = False
    round_late: bool = False
    """Roundings stand behind views (signs, slices, powers of two) instead of before."""


PLAIN = Spelling()


class _Writer:
    def __init__(self, s: Skeleton, schedule: Schedule, spelling: Spelling, model: bool) -> None:
        self.s, self.schedule, self.spelling, self.model = s, schedule, spelling, model
        self.rng = random.Random(spelling.reorder * 1000003 + s.seed)
        self.b = Builder()
        self.values: dict[int, Elements] = {}
        self.rounded: dict[tuple, Elements] = {}

    def run(self) -> Program:
        numbers = np.random.default_rng(self.s.seed)
        for i, (name, dtype, shape) in enumerate(self.s.leaves):
            raw = numbers.standard_normal(shape).astype(np.float32) * np.float32(0.7)
            bits = encode_bfloat16(raw) if dtype == "bfloat16" else raw
            self.b.site = Site(name=f"v{-1 - i}")
            self.values[-1 - i] = self.b.leaf(f"renamed_{i}" if self.spelling.rename else name, bits, dtype,
                                              dynamic=name in ("x", "y") or not self.model, keep=True)
        for group in self.order():
            if len(group) == 2:
                self.merged(*group)
            else:
                self.values[group[0]] = self.step(group[0])
        for i, v in enumerate(self.s.outputs):
            self.b.output(f"output{i}", self.read(-1 - i, Read(v)))
        return self.b.program

    def order(self) -> list[tuple[int, ...]]:
        """Steps, each after what it reads; with `merge` some independent equal ops in pairs."""
        left, done, result = list(range(len(self.s.steps))), set(), []
        while left:
            ready = [i for i in left if all(r.value is None or r.value < 0 or r.value in done for r in self.s.steps[i].reads)]
            i = self.rng.choice(ready) if self.spelling.reorder else ready[0]
            group = (i,)
            if self.spelling.merge and self.mergeable(i):
                twins = [j for j in ready if j != i and self.s.steps[j].op == self.s.steps[i].op and self.mergeable(j)]
                group = (i, twins[0]) if twins else group
            left = [j for j in left if j not in group]
            done |= set(group)
            result.append(group)
        return result

    def mergeable(self, i: int) -> bool:
        step = self.s.steps[i]
        return step.op in ("add", "mul", "sub", "exp", "tanh") and step.shape == (T, D) and all(r.value is not None for r in step.reads)

    def site(self, i: int) -> None:
        name = f"v{i}"
        self.b.site = Site(name=name, kernel="other" if self.spelling.rename else "kernel", line=self.rng.randrange(99) if self.spelling.rename else 1)

    # ---- reads
    def read(self, consumer: int, r: Read) -> Elements:
        self.b.site = Site(name="view")
        if r.value is None:
            return self.b.const(r.constant)
        chain = self.schedule.get((consumer, r.value), ())
        value = self.values[r.value]
        if self.spelling.recompute and r.value >= 0 and self.rng.random() < 0.4 and self.s.steps[r.value].op != "mm":
            value = self.step(r.value)
            self.b.site = Site(name="view")
        if self.spelling.lossless and r.value < 0 and self.s.leaves[-1 - r.value][1] == "bfloat16":
            value = self.b.round(value, "bfloat16")
        if not self.spelling.round_late:
            return self.view(self.round(value, chain, r.value), r.view)
        return self.round(self.view(value, r.view), chain, r.value)

    def round(self, x: Elements, chain: tuple[str, ...], value: int) -> Elements:
        for dtype in chain:
            x = self.b.round(x, dtype)
            if self.spelling.lossless:
                x = self.b.round(x, dtype)
        return x

    def view(self, x: Elements, view: str) -> Elements:
        h = D // 2
        if view == "neg":
            return self.b.op("neg", x)
        if view == "half":
            return self.b.op("mul", x, 0.5)
        if view == "rotated":
            minus = self.b.op("neg", x.map(lambda ids: ids[:, h:]))
            return Elements(x.shape, ids=np.concatenate([minus.ids, x.ids[:, :h]], axis=1))
        if view in ("low", "high", "first"):
            return x.map(lambda ids: {"low": ids[:, :h], "high": ids[:, h:], "first": ids[:, :1]}[view])
        return x

    # ---- steps
    def step(self, i: int) -> Elements:
        step = self.s.steps[i]
        self.site(i)
        ins = [self.read(i, r) for r in step.reads]
        self.site(i)
        if self.spelling.commute and step.op in COMMUTES:
            ins = ins[::-1]
        if self.spelling.split and step.op not in ("mm", *REDUCES) and step.shape == (T, D):
            h = D // 2
            parts = [self.op(step.op, [self.columns(x, cut) for x in ins], (T, h)) for cut in (slice(0, h), slice(h, D))]
            return Elements((T, D), ids=np.concatenate([p.ids for p in parts], axis=1))
        return self.op(step.op, ins, step.shape)

    @staticmethod
    def columns(x: Elements, cut: slice) -> Elements:
        return x.map(lambda ids: ids[:, cut]) if len(x.shape) == 2 and x.shape[1] == D else x

    def op(self, op: str, ins: list[Elements], shape: tuple[int, int]) -> Elements:
        if op == "mm":
            return self.b.op("mm", *ins)
        turned = self.spelling.transpose
        if turned:
            ins = [x.map(lambda ids: ids.T) if len(x.shape) == 2 else x for x in ins]
        if op in REDUCES:
            out = self.b.op(op, *ins, axes=(0,) if turned else (1,))
            return out.reshape(*shape)
        out = self.b.op(op, *ins)
        return out.map(lambda ids: ids.T) if turned else out

    def merged(self, i: int, j: int) -> None:
        """One node over concatenated operands instead of two."""
        one, two = self.s.steps[i], self.s.steps[j]
        self.site(i)
        a, b = ([np.broadcast_to(self.read(k, r).ids, (T, D)) for r in step.reads] for k, step in ((i, one), (j, two)))
        self.b.site = Site(name=f"v{i}+v{j}")
        out = self.b.op(one.op, *(Elements((2 * T, D), ids=np.concatenate([x, y])) for x, y in zip(a, b)))
        self.values[i], self.values[j] = out.map(lambda ids: ids[:T]), out.map(lambda ids: ids[T:])


def build(s: Skeleton, schedule: Schedule, spelling: Spelling = PLAIN, model: bool = False) -> Program:
    """model: all leaves but x and y are weights and tables, which depend on no token."""
    return _Writer(s, schedule, spelling, model).run()


def capture(program: Program) -> Capture:
    """As a function's capture, or, where some leaf is a weight, as a model's: weights as hashes, anchors pinned."""
    model = any(node.op == "leaf" and not node.dynamic for node in program.nodes)
    data = probe(program, program.data, static_rule=model, pin_anchors=model)
    return Capture(CaptureInfo(kind="transformers" if model else "function", outputs=[o.name for o in program.outputs]), program, data, {})


# ---- what must be found
def changing(s: Skeleton, schedule: Schedule) -> set[tuple[int, int, str]]:
    """(consumer, value, format) of roundings that change a bit, under the schedule they stand in."""
    from graphdiff.program.dtypes import round_to

    program = build(s, schedule)
    found = set()
    run = Evaluation(program, program.data)
    node_of = {program.site(n).name: n for n, node in enumerate(program.nodes) if node.op != "const"}
    for (consumer, value), chain in schedule.items():
        x = run.flat(node_of[f"v{value}"]).reshape(s.shape(value))
        views = {"same"} if consumer < 0 else {r.view for r in s.steps[consumer].reads if r.value == value}
        cuts = {"low": x[:, :D // 2], "high": x[:, D // 2:], "first": x[:, :1]}
        for dtype in chain:
            if any((round_to(y := np.ascontiguousarray(cuts.get(v, x)), dtype) != y).any() for v in views):
                found.add((consumer, value, dtype))
            x = round_to(x, dtype)
            cuts = {"low": x[:, :D // 2], "high": x[:, D // 2:], "first": x[:, :1]}
    return found


def expected(s: Skeleton, own: Schedule, other: Schedule) -> set[tuple[int, str]]:
    """(value, format) rounded for some reader here that reads it without that rounding there."""
    return {(v, f) for c, v, f in changing(s, own) if f not in other.get((c, v), ())}


def tame(s: Skeleton) -> bool:
    """Numbers stay in range and no two values share numbers (equal ones are one value to anybody)."""
    from graphdiff.probe.dequantise import Skeleton as Exact
    from graphdiff.probe.sketch import element_hashes

    if not s.outputs:
        return False
    program = build(s, {})
    run = Exact(program, program.data, static_rule=False)
    seen: dict[int, str] = {}
    for n, node in enumerate(program.nodes):
        name = program.site(n).name
        if node.op == "const" or not name.startswith("v"):
            continue
        x = run.flat(n)
        if not np.isfinite(x).all() or np.abs(x).max() > 1e4 or np.abs(x).max() < 1e-6:
            return False
        hashes = element_hashes(x)
        hashes = hashes[hashes != 0]
        if node.op == "leaf":
            continue  # BF16 leaves share numbers by nature
        shared = sum(seen.setdefault(int(h), name) != name for h in hashes)
        if shared > 0.02 * hashes.size or hashes.size < node.size // 2:
            return False
    return True
