"""Regions: moved values that belong together, named by rules and folded over layers.

Values of one rule instance (one norm, one rotation) are one region; what no rule names is cut by connection: values
whose reads follow each other without an agreeing rounding in between. The layer number in the module path is the only
thing that is folded over.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Literal

import networkx

from graphdiff.compare.diff import Diff, Direction
from graphdiff.compare.values import MovedValue

LAYER = re.compile(r"(?<=\.)\d+(?=\.|$)")


@dataclass
class Entry:
    """One moved value with its name. `rounded_in` names the side that rounds it."""

    value: MovedValue
    naming: Any
    rounded_in: Literal["inference", "training"]


@dataclass
class Region:
    """One instance: entries of one place. `place` is where it stands (module path with its layer number)."""

    rule: str | None
    kind: str
    title: str
    entries: list[Entry] = field(default_factory=list)
    place: str = ""
    source: tuple[str, int, int] = ("", 0, 0)
    root: int | None = None


@dataclass
class Folded:
    """Regions that differ in the layer number alone."""

    instances: list[Region]

    @property
    def first(self) -> Region:
        return max(self.instances, key=lambda r: len(r.entries))


def fold_path(path: str) -> str:
    """`model.layers.3.mlp` -> `model.layers.*.mlp`: the first number only."""
    return LAYER.sub("*", path, count=1)


def find_regions(diff: Diff, name_values: Any) -> list[Region]:
    """Every moved value in exactly one region, in program order."""
    regions: dict[Any, Region] = {}
    owners: dict[int, Any] = {}
    for side_name, direction in (("training", diff.training), ("inference", diff.inference)):
        namings = name_values(direction.side, direction.values) if direction.values else []
        parts = _connected(direction)
        for value, naming, part in zip(direction.values, namings, parts):
            module = direction.side.program.site(_anchor_node(direction, value)).module
            key = _key(side_name, direction, naming, module or part, owners)
            if key not in regions:
                regions[key] = Region(naming.rule, naming.kind, naming.title, root=naming.root)
                _place(regions[key], direction, value, naming)
            regions[key].entries.append(Entry(value, naming, side_name))
            if naming.root is not None and side_name == "training":
                owners[naming.root] = key
    for region in regions.values():
        region.entries.sort(key=lambda e: (e.rounded_in != "training", e.naming.order, e.value.reads[0].row))
    return list(regions.values())


def _key(side_name: str, direction: Direction, naming: Any, part: str | int, owners: dict[int, Any]) -> Any:
    """An inference value whose rule instance stands at a training region's root joins that region."""
    if naming.root is None:
        # A stream that is never rounded connects every layer: in a model, what no rule names is cut at modules.
        return (side_name, "part", part, naming.rule)
    if side_name == "inference":
        sketch = direction.side.value(naming.root)
        for n in direction.pairing.nodes(sketch) if sketch >= 0 else ():
            if n in owners:
                return owners[n]
    return (side_name, naming.rule, naming.root)


def _place(region: Region, direction: Direction, value: MovedValue, naming: Any) -> None:
    side = direction.side
    node = naming.root if naming.root is not None else _anchor_node(direction, value)
    site = side.program.site(node)
    if not site.module:
        for n in direction.pairing.nodes(side.value(node)) if side.value(node) >= 0 else ():
            other = direction.pairing.other.program.site(n)
            if other.module:
                site = other
                break
    region.place = site.module
    region.source = (site.file or site.code, site.line or site.code_line, site.column)


def _anchor_node(direction: Direction, value: MovedValue) -> int:
    side, read = direction.side, value.reads[0]
    bases = [b for b in read.bases if side.program.nodes[b].kind != "leaf"]
    consumer = side.consumer[read.row]
    return bases[0] if bases else consumer if consumer >= 0 else side.operand(read.row).nodes[0]


def _connected(direction: Direction) -> list[int]:
    """Part number of each moved value: values whose reads follow each other are one part."""
    side = direction.side
    follow = networkx.Graph()
    follow.add_nodes_from(range(len(direction.values)))
    produces: dict[int, list[int]] = defaultdict(list)
    for i, value in enumerate(direction.values):
        for read in value.reads:
            for b in read.bases:
                if side.program.nodes[b].kind != "leaf":
                    produces[b].append(i)
    for i, value in enumerate(direction.values):
        for row in value.rows():
            follow.add_edges_from((i, j) for j in produces.get(side.consumer[row], ()))
            follow.add_edges_from((i, j) for base in _siblings(direction, row) for j in produces.get(base, ()))
    part = {i: min(group) for group in networkx.connected_components(follow) for i in group}
    return [part[i] for i in range(len(direction.values))]


def _siblings(direction: Direction, row: int) -> list[int]:
    """Bases read beside this row by the same consumer: two products of one sum are one region."""
    side = direction.side
    consumer = side.consumer[row]
    if consumer < 0:
        return []
    return [b for r in side.rows_of[consumer] for b in side.bases(r)]


def fold(regions: list[Region]) -> list[Folded]:
    """Regions of the same rule, place and source line, layer numbers aside."""
    groups: dict[Any, list[Region]] = {}
    for i, region in enumerate(regions):
        folded = fold_path(region.place)
        unique = i if folded == region.place and not region.place else 0
        groups.setdefault((region.rule, region.kind, region.title, folded, region.source, unique), []).append(region)
    return [Folded(group) for group in _with_lesser_layers(list(groups.values()))]


def _with_lesser_layers(groups: list[list[Region]]) -> list[list[Region]]:
    """Some layers hold less of one place's region (the first layer's norm has no residual sum before it), and another
    rule names them: they are instances of the fuller one all the same."""
    by_place: dict[Any, list[list[Region]]] = defaultdict(list)
    for group in groups:
        by_place[fold_path(group[0].place), group[0].source].append(group)
    merged = []
    for (place, _), here in by_place.items():
        here.sort(key=lambda g: -len(_values(g)))
        kept: list[list[Region]] = []
        for group in here:
            fuller = next((g for g in kept if "*" in place and _values(group) <= _values(g)), None)
            if fuller is None:
                kept.append(group)
            else:
                fuller.extend(group)
        merged.extend(kept)
    return merged


def _values(group: list[Region]) -> set[tuple[str, str]]:
    return {(e.naming.value, e.rounded_in) for region in group for e in region.entries}
