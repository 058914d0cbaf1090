"""Where a value is computed on each side, and by which mechanism one side does without the rounding."""

from __future__ import annotations

from graphdiff.compare.diff import Direction
from graphdiff.compare.moved import MovedRead
from graphdiff.compare.side import Side, base_format
from graphdiff.compare.values import MovedValue
from graphdiff.program.source_path import package_path
from graphdiff.report import model


def rounding_node(side: Side, read: MovedRead) -> int:
    """The op that rounds the value a row reads, as the moved event says: of the rounds between the value and the read the
    first of that format that changes bits. Where there is none (a table stored rounded), what the row reads."""
    base = value_node(side, read)
    found, seen, stack = [], set(), list(side.operand(read.row).nodes)
    while stack:
        n = stack.pop()
        if n in seen or not side.is_exact(n) or base not in side.bases_of_node(n):
            continue
        seen.add(n)
        node = side.program.nodes[n]
        if node.op == "round":
            found.append((node.dtype != base_format(read.event), side.changes_bits(n) is False, n))
        stack.extend(m for o in node.operands for m in o.nodes)
    return min(found)[-1] if found else side.operand(read.row).nodes[0]


def value_node(side: Side, read: MovedRead) -> int:
    """The base that forms the value (arithmetic before leaves)."""
    formed = [b for b in read.bases if side.program.nodes[b].kind != "leaf"]
    return (formed or read.bases)[0]


def position(side: Side, node: int) -> model.Position:
    """A node's place as the report shows it."""
    site, n = side.program.site(node), side.program.nodes[node]
    name = site.name if site.name and not site.name.startswith("aten.") else n.attrs.get("name", n.op)
    file, line = (site.file, site.line) if site.file else (site.code, site.code_line)
    return model.Position(node=f"%{node} {name}", kernel=site.kernel, file=package_path(file) or None, line=line or None,
                          column=site.column if site.file and site.end_column else None, end_column=site.end_column or None,
                          text=site.text)


def other_position(direction: Direction, value: MovedValue) -> model.Position:
    """Where the side that does not round it forms the value; empty if it never does."""
    nodes = _formed_there(direction, value)
    return position(direction.pairing.other, nodes[0]) if nodes else model.Position()


def _formed_there(direction: Direction, value: MovedValue) -> list[int]:
    other = direction.pairing.other
    found = []
    for read in value.reads:
        for row in read.other_rows:
            found.extend(b for b in _same_value(direction, read, row) if other.program.nodes[b].kind != "leaf")
        found.extend(n for n in read.other_nodes if other.program.nodes[n].kind in ("arith", "anchor"))
    if not found:
        found = [b for read in value.reads for row in read.other_rows for b in other.bases(row)]
    return list(dict.fromkeys(found))


def _same_value(direction: Direction, read: MovedRead, row: int) -> tuple[int, ...]:
    """Of the values that a read of the other side holds those that are this one; all where none is known to be."""
    other = direction.pairing.other
    partners = set(direction.pairing.partners(read.sketch))
    return tuple(b for b in other.bases(row) if other.value(b) in partners) or other.bases(row)


def mechanism(direction: Direction, value: MovedValue) -> model.Mechanism:
    """Why one side rounds and the other does not, from what the other side does with the value."""
    own, other = direction.side, direction.pairing.other
    read = value.reads[0]
    if own.static[read.row]:
        return "constant dtype" if own.total[read.row] == 1 else "table dtype"
    if all(own.program.nodes[b].kind == "leaf" for b in read.bases):
        return "constant dtype" if own.total[read.row] == 1 else "table dtype"
    nodes = _formed_there(direction, value)
    if not nodes:
        return "graph rewrite"
    if not any(other.program.site(n).code for n in nodes):
        return "unknown"  # both sides eager: the cast stands, or is missing, in the source
    rows = {r for m in value.reads for r in m.other_rows}
    kernels = {(other.program.site(n).code, other.program.site(n).kernel) for n in nodes}
    if any(_is_stored(other, n) for n in nodes):
        return "store reused from a register"
    readers = {(other.program.site(other.consumer[r]).code, other.program.site(other.consumer[r]).kernel)
               for r in rows if other.consumer[r] >= 0}
    if len(kernels) > 1 and readers <= kernels:
        return "recomputed from inputs"
    return "fused into one kernel"


def _is_stored(side: Side, node: int) -> bool:
    """True if a rounded copy of the value is made as well."""
    return node in side.rounded_bases
