"""The derivative of a region, as another row-wise part: reverse mode over its values, in FP32.

Nothing is saved but the region's own inputs: every intermediate is computed again, which moves no byte more (the
inputs are read for the derivative anyway). Rounding has derivative 1. Gradients are rounded where they leave the
region, by the store. Tables (cos, sin) are constants.
"""

from __future__ import annotations

import math

from graphdiff.emit.ir import Input, Lanes, Part, Piece, RowOutput, VectorOutput


class NoDerivative(Exception):
    """An op that no derivative is known for."""


class Backward(Part):
    """The gradient part. `gradient_of[input]` is the output that holds its gradient (several may share one);
    `carry_gradient` the output that holds the gradient of the value handed to an earlier region."""

    gradient_of: dict[str, str]
    carry_gradient: str = ""


def backward_part(part: Part) -> Backward:
    """Raises NoDerivative."""
    return _Reverse(part).run()


class _Reverse:
    def __init__(self, part: Part) -> None:
        self.f = part
        self.b = Backward(part.name, part.width, part.per_head, heads=part.heads, bind=dict(part.bind))
        self.b.gradient_of = {}
        self.copied: dict[int, int] = {}
        self.adjoint: dict[int, int] = {}
        self._slices: dict[tuple[int, Lanes], int] = {}

    def run(self) -> Backward:
        f, b = self.f, self.b
        b.inputs = list(f.inputs)
        order = f.needed()
        for v in order:
            self._copy(v)
        for o in f.outputs:
            self._gradient_input(f"grad_{o.name}", o.width, f.bind.get(o.name, o.name))
            for piece in o.pieces:
                self._add(piece.value, b.load(f"grad_{o.name}", piece.lanes))
        if f.carries >= 0:
            self._gradient_input("grad_carry", f.width, "carry")
            self._add(f.carries, b.load("grad_carry", Lanes(0, 1, f.width)))
        for v in reversed(order):
            if v in self.adjoint and v != f.carried and f.values[v].op not in ("load", "const"):
                self._propagate(v, self.adjoint[v])
        self._outputs()
        used = {b.values[v].attr[0] for v in b.needed() if b.values[v].op == "load"}
        b.inputs = [i for i in b.inputs if i.name in used]
        return b

    def _gradient_input(self, name: str, width: int, tensor: str) -> None:
        self.b.inputs.append(Input(name, "grad", width, self.f.per_head, ""))
        self.b.bind[name] = f"grad_{tensor}"

    def _copy(self, v: int) -> None:
        value = self.f.values[v]
        self.copied[v] = self.b.add(type(value)(value.op, tuple(self.copied[a] for a in value.args), value.lanes, value.attr))

    def _add(self, v: int, gradient: int) -> None:
        self.adjoint[v] = gradient if v not in self.adjoint else self.b.op("add", self.adjoint[v], gradient)

    # ---- one op
    def _propagate(self, v: int, g: int) -> None:
        value = self.f.values[v]
        if value.op == "sum":
            self._add(value.args[0], g)  # the same number for every lane
            return
        logistic = self._logistic(v)
        if logistic is not None:
            numerator, x, s = logistic
            self._give(numerator, self._mul(g, s), value.lanes)
            self._give(x, self._mul(self._mul(g, self.copied[v]), self.b.op("sub", self.b.const(1.0), s)), value.lanes)
            return
        args = [self.copied[a] for a in value.args]
        for a, gradient in zip(value.args, self._rule(value.op, value.attr, g, args, self.copied[v])):
            if gradient is not None:
                self._give(a, gradient, value.lanes)

    def _give(self, a: int, gradient: int, lanes: int) -> None:
        """Add to an argument's gradient; a number that all `lanes` of the reader use gets the sum over them."""
        if self.f.values[a].op == "const":
            return
        if self.f.values[a].lanes == 1 and lanes > 1:
            gradient = self.b.sum(gradient) if self.b.values[gradient].lanes > 1 else self._mul(gradient, self.b.const(float(lanes)))
        self._add(a, gradient)

    def _mul(self, a: int, b: int) -> int:
        return self.b.op("mul", a, b)

    def _logistic(self, v: int) -> tuple[int, int, int] | None:
        """(a, x, s) if v is a / (exp(-x) + 1), s = 1 / (exp(-x) + 1).

        Taken as one op: op by op its derivative is inf * 0 where exp overflows, for gates below -88.
        """
        values = self.f.values
        if values[v].op != "div":
            return None
        numerator, below = values[v].args
        if values[below].op != "add":
            return None
        for e, one in (values[below].args, values[below].args[::-1]):
            if values[one].op == "const" and values[one].attr == (1.0,) and values[e].op == "exp" and values[values[e].args[0]].op == "neg":
                return numerator, values[values[e].args[0]].args[0], self.b.op("div", self.b.const(1.0), self.copied[below])
        return None

    def _rule(self, op: str, attr: tuple, g: int, x: list[int], y: int) -> list[int | None]:
        b, mul, const = self.b, self._mul, self.b.const
        neg = lambda v: b.op("neg", v)  # noqa: E731
        if op in ("add", "round"):
            return [g] * len(x)
        if op == "sub":
            return [g, neg(g)]
        if op == "mul":
            return [mul(g, x[1]), mul(g, x[0])]
        if op == "div":
            return [b.op("div", g, x[1]), neg(b.op("div", mul(g, y), x[1]))]
        if op == "neg":
            return [neg(g)]
        if op == "pow" and self.b.values[x[1]].op == "const":
            (power,) = self.b.values[x[1]].attr
            return [mul(g, mul(const(power), b.op("pow", x[0], const(power - 1)))), None]
        if op in ("maximum", "minimum"):
            first = b.op("ge", *(x if op == "maximum" else x[::-1]))
            return [mul(g, first), mul(g, b.op("sub", const(1.0), first))]
        simple = {
            "exp": lambda: mul(g, y),
            "exp2": lambda: mul(mul(g, y), const(math.log(2))),
            "log": lambda: b.op("div", g, x[0]),
            "rsqrt": lambda: mul(mul(g, const(-0.5)), mul(mul(y, y), y)),
            "sqrt": lambda: b.op("div", mul(g, const(0.5)), y),
            "reciprocal": lambda: neg(mul(g, mul(y, y))),
            "tanh": lambda: mul(g, b.op("sub", const(1.0), mul(y, y))),
            "sigmoid": lambda: mul(g, mul(y, b.op("sub", const(1.0), y))),
            "erf": lambda: mul(g, mul(const(2 / math.sqrt(math.pi)), b.op("exp", neg(mul(x[0], x[0]))))),
            "sin": lambda: mul(g, b.op("cos", x[0])),
            "cos": lambda: neg(mul(g, b.op("sin", x[0]))),
            "abs": lambda: mul(g, b.op("sub", mul(const(2.0), b.op("ge", x[0], const(0.0))), const(1.0))),
        }
        if op not in simple:
            raise NoDerivative(f"{op} has no derivative rule")
        return [simple[op]()]

    # ---- what leaves
    def _outputs(self) -> None:
        f, b = self.f, self.b
        behind = set(f.needed([f.carried])) if f.carried >= 0 else set()
        known: dict[tuple[Piece, ...], str] = {}
        if f.carried >= 0:
            self._row_output("carry", (Piece(Lanes(0, 1, f.width), self.adjoint[f.carried]),), f.width, known)
            b.carry_gradient = b.gradient_of.pop("carry")
        for i in f.inputs:
            loads = [v for v in f.needed() if f.values[v].op == "load" and f.values[v].attr[0] == i.name and v in self.adjoint and v not in behind]
            if i.role not in ("row", "vector") or not loads:
                continue
            pieces = tuple(self._input_gradient(loads))
            if i.role == "row":
                self._row_output(i.name, pieces, i.width, known)
            else:
                name = f"grad_{i.name}"
                b.vectors.append(VectorOutput(name, i.width, pieces))
                b.gradient_of[i.name] = name
                b.bind[name] = f"grad_{f.bind.get(i.name, i.name)}"

    def _row_output(self, name: str, pieces: tuple[Piece, ...], width: int, known: dict[tuple[Piece, ...], str]) -> None:
        """Equal gradients (the addends of one sum) are written once."""
        if pieces not in known:
            known[pieces] = f"grad_{name}"
            self.b.outputs.append(RowOutput(f"grad_{name}", "", width, pieces))
            self.b.bind[f"grad_{name}"] = f"grad_{self.f.bind.get(name, name)}"
        self.b.gradient_of[name] = known[pieces]

    def _input_gradient(self, loads: list[int]) -> list[Piece]:
        """The gradient on the finest classes of lanes that are loaded."""
        lanes = {v: self.f.lanes_of_load(v)[1] for v in loads}
        classes: list[Lanes] = []
        for v in sorted(loads, key=lambda v: (lanes[v].count, lanes[v])):
            taken = {x for c in classes for x in c.index()}
            here = set(lanes[v].index())
            if not here & taken:
                classes.append(lanes[v])
            elif not here <= taken:
                raise NoDerivative("lanes are loaded in overlapping classes")
        pieces = []
        for c in sorted(classes):
            total = None
            for v in loads:
                if set(c.index()) <= set(lanes[v].index()):
                    part = self._slice(self.adjoint[v], self._within(c, lanes[v]))
                    total = part if total is None else self.b.op("add", total, part)
                elif set(c.index()) & set(lanes[v].index()):
                    raise NoDerivative("lanes are loaded in overlapping classes")
            pieces.append(Piece(c, total))
        return pieces

    @staticmethod
    def _within(inner: Lanes, outer: Lanes) -> Lanes:
        return Lanes((inner.start - outer.start) // outer.step, max(1, inner.step // outer.step), inner.count)

    def _slice(self, v: int, lanes: Lanes) -> int:
        """v on some of its lanes: elementwise values follow their loads."""
        value = self.b.values[v]
        if value.lanes == 1 or lanes == Lanes(0, 1, value.lanes):
            return v
        if (v, lanes) not in self._slices:
            if value.op == "load":
                name, own = self.b.lanes_of_load(v)
                made = self.b.load(name, Lanes(own.start + own.step * lanes.start, own.step * lanes.step, lanes.count))
            else:
                made = self.b.op(value.op, *[self._slice(a, lanes) for a in value.args], attr=value.attr)
            self._slices[v, lanes] = made
        return self._slices[v, lanes]
