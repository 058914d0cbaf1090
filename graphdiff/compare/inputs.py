"""Dumped graphs on the inputs of what they are compared with.

A dump holds no inputs, so its program was evaluated on stand-ins. Compared with a function's capture it is evaluated
again on the function's inputs, compared with another dump on that one's, if it is certain which input is which.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass

import msgspec

from graphdiff.errors import GraphdiffError
from graphdiff.probe import probe
from graphdiff.program import Program
from graphdiff.store import Capture

PLACE = re.compile(r"arg\d+")
SAME = "fix the sizes (--tokens), or capture both sides in one way"


@dataclass(frozen=True)
class _Leaf:
    node: int
    name: str
    kind: tuple[tuple[int, ...], str]

    @property
    def is_named(self) -> bool:
        return not PLACE.fullmatch(self.name)


def on_the_same_inputs(inference: Capture, training: Capture) -> tuple[Capture, Capture]:
    """Both captures, dumped ones evaluated on the other's inputs. Raises GraphdiffError if it cannot tell which is which."""
    kinds = inference.header.kind, training.header.kind
    if "dumps" not in kinds:
        return inference, training
    if kinds == ("dumps", "function"):
        return _moved(inference, training), training
    return inference, _moved(training, inference)


def _moved(own: Capture, other: Capture) -> Capture:
    """`own` on the inputs of `other`."""
    if other.header.kind == "function" and _made_up(own):
        raise GraphdiffError(f"the dump does not hold its integer inputs ({', '.join(_made_up(own))}), which select what is read", where=own.header.model.name,
                             fix="compare it with another dump of the same graph")
    pairs, how = _pairs(_leaves(own.program), _leaves(other.program), "dumps" == other.header.kind, own.header.model.name)
    data = {**own.program.data, **{a.node: other.program.data[b.node] for a, b in pairs if b.node in other.program.data}}
    program = copy(own.program)
    program.data = data
    made = probe(program, data, static_rule=False, pin_anchors=False)
    header = msgspec.structs.replace(own.header, notes=[*own.header.notes, f"evaluated on the other side's inputs, paired by {how}"])
    return Capture(header, program, made, own.sources)


def _made_up(capture: Capture) -> list[str]:
    inputs = capture.header.model.config.get("integer_inputs")
    return [str(n)[:40] for n in inputs[:8]] if isinstance(inputs, list) else []


def _leaves(program: Program) -> list[_Leaf]:
    """Inputs that something reads, in the order of the arguments."""
    used = {m for node in program.nodes for o in node.operands for m in o.nodes} | {m for o in program.outputs for m in o.operand.nodes}
    leaves = [(n, program.nodes[n]) for n in sorted(used) if program.nodes[n].op == "leaf"]
    return [_Leaf(n, str(node.attrs.get("name", "")), (node.shape, node.dtype)) for n, node in leaves if node.attrs.get("name") != "const"]


def _pairs(own: list[_Leaf], other: list[_Leaf], both_dumps: bool, where: str) -> tuple[list[tuple[_Leaf, _Leaf]], str]:
    """Which input is which: by name, else by place between dumps, else by sizes and format where they differ."""
    mine: Mapping[str, _Leaf] = {x.name: x for x in own}
    theirs: Mapping[str, _Leaf] = {x.name: x for x in other}
    if all(x.is_named for x in (*own, *other)) and (set(mine) <= set(theirs) or set(theirs) <= set(mine)):
        pairs = [(mine[n], theirs[n]) for n in mine if n in theirs]
        unlike = [a.name for a, b in pairs if a.kind != b.kind]
        if unlike:
            raise GraphdiffError(f"the input {unlike[0]} has other sizes or another format on the other side", where=where, fix=SAME)
        return pairs, "name"
    if both_dumps and [x.kind for x in own] == [x.kind for x in other]:
        return list(zip(own, other)), "place: one of the dumps does not name them"
    kinds = {x.kind: x for x in other}
    if len(kinds) == len(other) == len(own) and {x.kind for x in own} == set(kinds):
        return [(x, kinds[x.kind]) for x in own], "sizes and format"
    elements = [sum(math.prod(x.kind[0]) for x in side) for side in (own, other)]
    raise GraphdiffError(f"could not tell which input of the dump is which of the other side ({len(own)} and {len(other)} inputs, {elements[0]} and {elements[1]} elements)",
                         where=where, fix="use TORCH_TRACE, which names the inputs, on both sides")
