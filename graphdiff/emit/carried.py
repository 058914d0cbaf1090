"""Values that two regions compute: the residual's inner sum, which the engine never stores and computes twice.

o + r is normed after attention, and computed again inside down + (o + r). Its gradient therefore comes from two
regions. Were it left to autograd, it would be added outside, twice (once for o, once for r): 49,152 bytes a token at
hidden size 4096, and one rounding more. Instead the later region hands the gradient of the sum to the earlier one.
"""

from __future__ import annotations

from graphdiff.emit.ir import Part, RegionIR


def link_carried(regions: list[RegionIR]) -> None:
    """Mark, in each pair of regions, the widest value both compute from the same activations."""
    computed: dict[tuple, tuple[Part, int]] = {}
    for region in regions:
        for part in region.parts:
            keys = _keys(part)
            found = [v for v in sorted(keys, reverse=True) if keys[v] in computed and _is_only_way(part, v)]
            if found and part.carried < 0:
                earlier, value = computed[keys[found[0]]]
                if earlier.carries in (-1, value):
                    part.carried, earlier.carries = found[0], value
        for part in region.parts:
            for v, key in _keys(part).items():
                computed.setdefault(key, (part, v))


def _keys(part: Part) -> dict[int, tuple]:
    """Values of full width made of activations only, by what they compute from which nodes of the program."""
    keys: dict[int, tuple] = {}
    formed: dict[int, tuple] = {}
    for v in part.needed():
        value = part.values[v]
        if value.op == "load":
            i = part.input(value.attr[0])
            if i.role == "row":
                keys[v] = ("load", i.source, value.attr[1:])
        elif value.op in ("add", "sub", "mul") and value.lanes == part.width and all(a in keys for a in value.args):
            keys[v] = formed[v] = (value.op, *[keys[a] for a in value.args])
    return formed


def _is_only_way(part: Part, v: int) -> bool:
    """True if the activations behind v are read through v alone, so that v's gradient is all of theirs."""
    inside = set(part.needed([v]))
    outside = [u for u in part.needed() if u not in inside]
    return not any(a in inside and a != v for u in outside for a in part.values[u].args)
