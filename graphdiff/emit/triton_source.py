"""A part as Triton code: one device function that computes a tile of rows, and the kernel that launches it.

Everything is FP32 between loads and stores; a store rounds by the type of its pointer, to nearest even. Three shapes:

  rows       a tile of whole rows [ROWS, width]; the row reduction sees the row as the engine's kernel does
  loop       rows wider than one tile can hold: one pass per reduction, then one that stores, values computed again
  pointwise  no lane reads another: a tile is a stretch of one row
"""

from __future__ import annotations

from dataclasses import dataclass

from graphdiff.emit.ir import REDUCTIONS, Input, Lanes, Part, Piece
from graphdiff.emit.spelling import CannotSpell, names_of, triton_expression

WIDEST_TILE = 16384
"""Lanes of one row that a tile holds; wider rows are looped over."""
LOOP_BLOCK = 4096
POINTWISE_BLOCK = 1024
TILE = 2048
"""Lanes of a tile of several narrow rows."""


def power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def fit(width: int, largest: int) -> int:
    """The largest power of two up to `largest` that divides width evenly, if that is not tiny; else with a rest."""
    block = min(power_of_two(width), largest)
    while block > 256 and width % block:
        block //= 2
    return block if width % block == 0 else min(power_of_two(width), largest)


@dataclass(frozen=True)
class Shape:
    """How a part is cut into tiles. rows: per tile; block: lanes per tile (loop, pointwise) or of the whole row."""

    form: str
    rows: int
    block: int
    warps: int


def shape_of(part: Part, widest: int = WIDEST_TILE) -> Shape:
    full = power_of_two(part.width)
    if part.is_pointwise:
        block = fit(part.width, POINTWISE_BLOCK)
        return Shape("pointwise", max(1, POINTWISE_BLOCK // block), block, 4)
    if full > widest:
        if any(part.values[v].lanes not in (1, part.width) for v in part.needed()):
            raise CannotSpell(f"rows of {part.width} lanes that read each other are too wide for one tile")
        return Shape("loop", 1, min(LOOP_BLOCK, widest), 16)
    rows = max(1, TILE // full)
    return Shape("rows", rows, full, 4 if full <= 2048 else 8 if full <= 8192 else 16)


# ---- arguments
def strides_of(i: Input) -> list[str]:
    """Names of an input's stride arguments: batch, step, head, lane."""
    if i.role == "vector":
        return [f"{i.name}_l"]
    return [f"{i.name}_b", f"{i.name}_s", *([f"{i.name}_h"] if i.per_head else []), f"{i.name}_l"]


def function_arguments(part: Part) -> list[str]:
    """Arguments of the device function, in order: pointers and strides, outputs, sizes, constants."""
    return [*(a for i in part.inputs for a in (i.name, *strides_of(i))), *(o.name for o in part.outputs),
            *(o.name for o in part.vectors), "tile", *(["programs"] if part.vectors else []), "rows", "steps", *(["heads"] if part.per_head else [])]


class Writer:
    """Writes the device function of one part."""

    def __init__(self, part: Part, name: str, shape: Shape, comments: dict[int, str] | None = None) -> None:
        self.part, self.name, self.shape, self.comments = part, name, shape, comments or {}
        self.names = names_of(part)
        self.lines: list[str] = []
        self.indent = 1

    def put(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def text(self) -> str:
        part, shape = self.part, self.shape
        arguments = [*function_arguments(part), "ROWS: tl.constexpr", "BLOCK: tl.constexpr"]
        if part.vectors:
            arguments.append("WEIGHT_GRADIENT: tl.constexpr")
        self.lines = ["@jit", f"def {self.name}({', '.join(arguments)}):"]
        if part.vectors:
            self._accumulated()
        else:
            self._tile()
        return wrap("\n".join(self.lines)) + "\n"

    # ---- weight gradients: a program takes many tiles and keeps a partial sum
    def _accumulated(self) -> None:
        if self.shape.form == "loop":
            self.put("first = tile")
            self.put("for tile in range(first, tl.cdiv(rows, ROWS), programs):")
            self.indent += 1
            self._tile(in_memory=True)
            self.indent -= 1
            return
        self._lanes()
        pieces = [(o, p) for o in self.part.vectors for p in o.pieces]
        for n, (_, p) in enumerate(pieces):
            self.put(f"partial_{n} = tl.zeros([1, {power_of_two(p.lanes.count)}], tl.float32)")
        self.put("first = tile")
        self.put("for tile in range(first, tl.cdiv(rows, ROWS), programs):")
        self.indent += 1
        self._tile()
        self.put("if WEIGHT_GRADIENT:")
        self.indent += 1
        for n, (_, p) in enumerate(pieces):
            zeroed = f"tl.where(ok, {self.names[p.value]}, 0.0)"
            self.put(f"partial_{n} += tl.sum({zeroed}, 0)[None, :]" if self.shape.rows > 1 else f"partial_{n} += {zeroed}")
        self.indent -= 2
        self.put("if WEIGHT_GRADIENT:")
        self.indent += 1
        for n, (o, p) in enumerate(pieces):
            lane, ok = self._lane(p.lanes.count)
            mask = f", {ok}" if ok else ""
            self.put(f"tl.store({o.name} + first * {o.width} + {_at(lane, p.lanes)}, partial_{n}{mask})")
        self.indent -= 1

    # ---- one tile
    def _tile(self, in_memory: bool = False) -> None:
        if self.shape.form == "pointwise":
            self._pointwise()
            return
        self._rows("tile")
        if self.shape.form == "loop":
            self._loop(in_memory)
            return
        if not self.part.vectors:
            self._lanes()
        for v in self.part.needed():
            self._value(v)
        self._stores()

    def _lanes(self) -> None:
        for count in sorted({self.part.values[v].lanes for v in self.part.needed()} - {1}):
            self.put(f"lane_{count} = tl.arange(0, {power_of_two(count)})[None, :]")

    def _rows(self, tile: str) -> None:
        part = self.part
        self.put(f"row = {tile} * ROWS + tl.arange(0, ROWS)[:, None].to(tl.int64)")
        self.put("ok = row < rows")
        self.put("token = row // heads" if part.per_head else "token = row")
        if any(i.per_head for i in part.inputs):
            self.put("head = row % heads")
        self.put("batch = token // steps")
        self.put("step = token % steps")
        for i in part.inputs:
            if i.role != "vector":
                head = f" + head * {i.name}_h" if i.per_head else ""
                self.put(f"{i.name}_at = {i.name} + batch * {i.name}_b + step * {i.name}_s{head}")

    def _pointwise(self) -> None:
        blocks = -(-self.part.width // self.shape.block)
        self._rows(f"tile // {blocks}" if blocks > 1 else "tile")
        self.put(f"lane_{self.part.width} = {f'tile % {blocks} * BLOCK + ' if blocks > 1 else ''}tl.arange(0, BLOCK)[None, :]")
        for v in self.part.needed():
            self._value(v)
        self._stores()

    def _lane(self, count: int) -> tuple[str, str]:
        """Name of the lane index for values of `count` lanes, and the mask of real lanes ('' if all are)."""
        if count == 1:
            return "", ""
        exact = count % self.shape.block == 0 if self.shape.form in ("pointwise", "loop") else power_of_two(count) == count
        return f"lane_{count}", "" if exact else f"lane_{count} < {count}"

    def _mask(self, count: int) -> str:
        _, lanes = self._lane(count)
        return f"ok & ({lanes})" if lanes else "ok"

    def _address(self, i: Input, lanes: Lanes) -> str:
        lane, _ = self._lane(lanes.count)
        inside = f"{_at(lane, lanes) if lanes == Lanes(0, 1, lanes.count) and lane else f'({_at(lane, lanes)})'} * {i.name}_l"
        if i.role == "vector":
            return f"{i.name} + {inside}"
        return f"{i.name}_at + {inside}"

    def _value(self, v: int) -> None:
        part, value, name = self.part, self.part.values[v], self.names[v]
        if value.op == "const":
            return
        if v in self.comments:
            for line in self.comments[v].splitlines():
                self.put(f"# {line}")
        if value.op == "load":
            tensor, lanes = part.lanes_of_load(v)
            i = part.input(tensor)
            mask = self._lane(lanes.count)[1] if i.role == "vector" else self._mask(lanes.count)
            extra = f", mask={mask}, other=0.0" if mask else ""
            self.put(f"{name} = tl.load({self._address(i, lanes)}{extra}).to(tl.float32)")
        elif value.op in REDUCTIONS:
            self._reduce(v)
        elif value.op == "round":
            dtype, mode = value.attr
            if mode != "rne" or dtype not in ("bfloat16", "float16"):
                raise CannotSpell(f"rounding to {dtype} ({mode}) inside a kernel")
            self.put(f"{name} = round_{dtype}({self.names[value.args[0]]})")
        else:
            self.put(f"{name} = {triton_expression(part, v, self.names)}")

    def _reduce(self, v: int) -> None:
        value, name = self.part.values[v], self.names[v]
        if value.op != "sum":
            raise CannotSpell(f"{value.op} over a row")
        (arg,) = value.args
        _, lanes = self._lane(self.part.values[arg].lanes)
        summed = f"tl.where({lanes}, {self.names[arg]}, 0.0)" if lanes else self.names[arg]
        self.put(f"{name} = tl.sum({summed}, 1)[:, None]")

    def _stores(self) -> None:
        rounded = sorted({o.dtype for o in self.part.outputs if o.dtype})
        if rounded:
            self.put(f"# the one rounding, by the store: {' and '.join(rounded)} is the type of the pointer")
        for o in self.part.outputs:
            for p in o.pieces:
                self._store(o.name, o.width, p)

    def _store(self, name: str, width: int, p: Piece) -> None:
        lane, _ = self._lane(p.lanes.count)
        value = self.names[p.value]
        if self.part.values[p.value].op == "const" or self.part.values[p.value].lanes != p.lanes.count:
            raise CannotSpell("a result that does not depend on the lane")
        self.put(f"tl.store({name} + row * {width} + {_at(lane, p.lanes)}, {value}, {self._mask(p.lanes.count)})")

    # ---- rows wider than a tile
    def _loop(self, in_memory: bool) -> None:
        part, depth = self.part, self.part.depth()
        order = part.needed()
        sums = [v for v in order if part.values[v].op in REDUCTIONS]
        for level in range(1 + max((depth[v] for v in sums), default=-1)):
            here = [v for v in sums if depth[v] == level]
            for v in here:
                self.put(f"{self.names[v]}_lanes = tl.zeros([ROWS, BLOCK], tl.float32)")
            self._blocks(self._closure(here), here)
            for v in here:
                self.put(f"{self.names[v]} = tl.sum({self.names[v]}_lanes, 1)[:, None]")
            for v in order:
                if part.values[v].lanes == 1 and part.values[v].op not in REDUCTIONS and depth[v] == level + 1:
                    self._value(v)
        roots = [p.value for o in (*part.outputs, *part.vectors) for p in o.pieces]
        self._blocks(self._closure(roots), [], stores=True, in_memory=in_memory)

    def _closure(self, roots: list[int]) -> list[int]:
        """Row-wise values needed for these, sums taken as known."""
        part, seen, stack = self.part, set(), list(roots)
        while stack:
            v = stack.pop()
            if v in seen:
                continue
            seen.add(v)
            stack.extend(a for a in part.values[v].args if part.values[a].op not in REDUCTIONS)
        return sorted(v for v in seen if part.values[v].lanes > 1)

    def _blocks(self, values: list[int], sums: list[int], stores: bool = False, in_memory: bool = False) -> None:
        part, width = self.part, self.part.width
        self.put(f"for offset in range(0, {width}, BLOCK):")
        self.indent += 1
        self.put(f"lane_{width} = offset + tl.arange(0, BLOCK)[None, :]")
        for v in values:
            self._value(v)
        for v in sums:
            (arg,) = part.values[v].args
            name = f"{self.names[v]}_lanes"
            self.put(f"{name} = tl.where({self._mask(width)}, {name} + {self.names[arg]}, {name})")
        if stores:
            self._stores()
        if in_memory:
            self.put("if WEIGHT_GRADIENT:")
            self.indent += 1
            for o in part.vectors:
                for p in o.pieces:
                    lane, ok = self._lane(p.lanes.count)
                    at, mask = f"{o.name} + first * {o.width} + {_at(lane, p.lanes)}", self._mask(p.lanes.count)
                    self.put(f"tl.store({at}, tl.load({at}, {mask}, other=0.0) + {self.names[p.value]}, {mask})")
            self.indent -= 1
        self.indent -= 1


def _at(lane: str, lanes: Lanes) -> str:
    if not lane:
        return str(lanes.start)
    scaled = lane if lanes.step == 1 else f"{lanes.step} * {lane}"
    return scaled if lanes.start == 0 else f"{lanes.start} + {scaled}"


def wrap(text: str, width: int = 118) -> str:
    """Break the long argument lists of generated lines at commas."""
    lines = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 8)
        if len(line) > width and line.lstrip().startswith("return ") and _bare(line):
            line = line.replace("return ", "return (", 1) + ")"
        while len(line) > width and not line.lstrip().startswith("#") and (cut := line.rfind(", ", len(indent) + 1, width)) > 0:
            lines.append(line[:cut + 1])
            line = indent + line[cut + 2:]
        lines.append(line)
    return "\n".join(lines)


def _bare(line: str) -> bool:
    """True if some comma stands in no bracket."""
    depth = 0
    for c in line:
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            return True
    return False


def kernel_text(name: str, parts: list[Part], functions: list[str], shapes: list[Shape], tensors: list[str]) -> str:
    """The kernel that is launched: each program belongs to one part. `tensors`: pointer and stride arguments in order."""
    weights = any(p.vectors for p in parts)
    count = "programs" if weights else "tiles"
    sizes = []
    for i, part in enumerate(parts):
        suffix = f"_{part.name}" if part.name else ""
        sizes += [f"rows{suffix}", *([f"heads{suffix}"] if part.per_head else []), *([f"{count}{suffix}"] if len(parts) > 1 or weights else [])]
    constants = [f"{c}{_suffix(parts, i)}: tl.constexpr" for i in range(len(parts)) for c in ("ROWS", "BLOCK")]
    if weights:
        constants.append("WEIGHT_GRADIENT: tl.constexpr")
    lines = ["@jit", f"def {name}({', '.join([*tensors, *sizes, 'steps', *constants])}):", "    tile = tl.program_id(0)"]
    start = ""
    for i, (part, function) in enumerate(zip(parts, functions)):
        suffix = f"_{part.name}" if part.name else ""
        bound = {n: part.bind[n] for n in [*(j.name for j in part.inputs), *(o.name for o in part.outputs), *(o.name for o in part.vectors)]}
        arguments = []
        for a in function_arguments(part):
            if a == "tile":
                arguments.append(f"tile - ({start})" if start else "tile")
            elif a in ("rows", "heads", "programs"):
                arguments.append(f"{a}{suffix}")
            elif a == "steps":
                arguments.append(a)
            else:
                arguments.append(_bound(a, bound))
        arguments += [f"ROWS{_suffix(parts, i)}", f"BLOCK{_suffix(parts, i)}"] + (["WEIGHT_GRADIENT"] if part.vectors else [])
        call = f"{function}({', '.join(arguments)})"
        if len(parts) == 1:
            lines.append(f"    {call}")
        else:
            bound_of = f"{start} + {count}{suffix}" if start else f"{count}{suffix}"
            lines.append(f"    {'if' if not start else 'elif'} tile < {bound_of}:")
            lines.append(f"        {call}")
            start = bound_of
    return wrap("\n".join(lines)) + "\n"


def _suffix(parts: list[Part], i: int) -> str:
    return f"_{parts[i].name.upper()}" if parts[i].name else ""


def _bound(argument: str, bound: dict[str, str]) -> str:
    if argument in bound:
        return bound[argument]
    name, _, stride = argument.rpartition("_")
    return f"{bound[name]}_{stride}"
