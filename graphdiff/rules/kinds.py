"""Kinds a pattern may ask for behind a variable: `?w:static`, `?x:module(lm_head)`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from graphdiff.program.types import Operand
from graphdiff.rules.graph import ValueGraph
from graphdiff.rules.rows import adds_whole_rows, is_row_weight
from graphdiff.rules.tables import wave


@dataclass(frozen=True)
class Found:
    """What a variable would be bound to: bases, the operand they were read by (None at a pattern's root), its reader."""

    bases: tuple[int, ...]
    operand: Operand | None = None
    reader: int = -1


Test = Callable[[ValueGraph, Found, str], bool]


def _const(g: ValueGraph, f: Found, _: str) -> bool:
    return all(n.kind == "leaf" and n.size == 1 for n in (g.program.nodes[b] for b in f.bases))


def _leaf(g: ValueGraph, f: Found, _: str) -> bool:
    return all(g.program.nodes[b].kind == "leaf" for b in f.bases)


def _static(g: ValueGraph, f: Found, _: str) -> bool:
    return all(g.program.nodes[b].kind == "leaf" or not g.program.nodes[b].dynamic for b in f.bases)


def _vector(g: ValueGraph, f: Found, _: str) -> bool:
    """A weight or bias of one axis."""
    nodes = [g.program.nodes[b] for b in f.bases]
    return all(len(n.shape) == 1 and n.size > 1 and (n.kind == "leaf" or not n.dynamic) for n in nodes)


def _value(g: ValueGraph, f: Found, _: str) -> bool:
    """No constant."""
    return any(g.program.nodes[b].op != "const" and g.program.nodes[b].size > 1 for b in f.bases)


def _token(g: ValueGraph, f: Found, _: str) -> bool:
    """Depends on tokens, and is no vector."""
    return any(g.program.nodes[b].dynamic and len(g.program.nodes[b].shape) > 1 for b in f.bases)


def _matrix(g: ValueGraph, f: Found, _: str) -> bool:
    """A weight of two axes, as a linear layer has."""
    return f.operand is not None and len(f.operand.shape) == 2


def _batched(g: ValueGraph, f: Found, _: str) -> bool:
    """More than two axes: heads or batches, as keys and values in attention have."""
    return f.operand is not None and len(f.operand.shape) > 2


def _table(g: ValueGraph, f: Found, wanted: str) -> bool:
    """A table of cosines, `table(cos)`, or sines, `table(sin)`."""
    return wave(g, f.operand, f.bases, f.reader) == wanted


def _embedding(g: ValueGraph, f: Found, _: str) -> bool:
    """Rows picked from a table by ids."""
    for b in f.bases:
        node = g.program.nodes[b]
        picked = f.operand is not None and f.operand.form == "gather" and node.kind == "leaf" and len(node.shape) == 2
        if node.op != "embedding" and not picked:
            return False
    return True


def _relu(g: ValueGraph, f: Found, _: str) -> bool:
    return f.operand is not None and g.passes(f.operand, "maximum")


def _module(g: ValueGraph, f: Found, words: str) -> bool:
    """The module path's last part is one of these."""
    return any(re.fullmatch(words, g.program.site(b).module.rpartition(".")[2]) for b in f.bases)


def _fp8(g: ValueGraph, f: Found, _: str) -> bool:
    """Rounded to an 8-bit float."""
    return any(b in g.fp8 for b in f.bases)


def _float32(g: ValueGraph, f: Found, _: str) -> bool:
    """A leaf stored in float32."""
    return all(g.program.nodes[b].kind == "leaf" and g.program.nodes[b].dtype == "float32" and g.program.nodes[b].op != "const"
               for b in f.bases)


def _row_weight(g: ValueGraph, f: Found, _: str) -> bool:
    """A factor that each row of the other one has one number of, as experts' outputs have."""
    return is_row_weight(g, f.operand, f.bases, f.reader)


def _whole_rows(g: ValueGraph, f: Found, _: str) -> bool:
    """A product whose reader adds rows of it, not the numbers of a row."""
    return adds_whole_rows(g, f.operand, f.bases[0], f.reader)


KINDS: dict[str, Test] = {
    "const": _const, "leaf": _leaf, "static": _static, "vector": _vector, "value": _value, "token": _token, "matrix": _matrix,
    "batched": _batched, "table": _table, "embedding": _embedding, "relu": _relu, "module": _module, "fp8": _fp8,
    "float32": _float32, "row_weight": _row_weight, "whole_rows": _whole_rows,
}
