"""Readable names for a region, its inputs and outputs, from where they come from and what is done with them."""

from __future__ import annotations

from dataclasses import replace

from graphdiff.emit.ir import Input, Part
from graphdiff.program import Program


def give_names(program: Program, kind: str, parts: list[Part], module: str) -> str:
    """Name the parts' inputs and outputs; returns the region's name."""
    rotary = kind in ("rope", "qk_norm_rope") and len(parts) == 2
    for i, part in enumerate(parts):
        part.name = "qk"[i] if rotary else f"part{i}" if len(parts) > 1 else ""
        _rename(part, _inputs(program, kind, part), _outputs(part))
        _bind(part, parts[:i])
    return _region_name(kind, parts, module)


def _region_name(kind: str, parts: list[Part], module: str) -> str:
    tail = module.rpartition(".")[2]
    if kind == "gated_activation":
        ops = {v.op for v in parts[0].values}
        return "swiglu" if "exp" in ops or "sigmoid" in ops else "geglu" if ops & {"erf", "tanh"} else kind
    if kind == "rms_norm":
        return "rms_norm"
    if kind == "residual_rms_norm":
        return "final_norm" if tail == "norm" else tail if tail.isidentifier() else kind
    return kind


def name_by_structure(kind: str, parts: list[Part]) -> str:
    """A residual norm's name where no module is known: by which sums it hands on."""
    (part,) = parts
    if part.carries >= 0:
        return "post_attention_layernorm"
    if part.carried >= 0:
        return "input_layernorm" if len(part.outputs) > 1 else "final_norm"
    return kind


def _inputs(program: Program, kind: str, part: Part) -> dict[str, str]:
    taken: dict[str, str] = {}
    for i in part.inputs:
        name = wanted = _input(program, kind, part, i)
        count = 2
        while name in taken.values():
            name, count = f"{wanted}{count}", count + 1
        taken[i.name] = name
    return taken


def _input(program: Program, kind: str, part: Part, i: Input) -> str:
    if i.role == "vector":
        return "bias" if _is_added(part, i) else "weight"
    if i.role == "table":
        return _table(part, i)
    if kind == "gated_activation":
        return "gate" if _is_activated(part, i) else "up"
    if kind == "residual_rms_norm":
        source = _producer(program, i.source[0])
        module = program.site(source).module.rpartition(".")[2]
        if program.nodes[source].op == "mm":
            return {"o_proj": "attn", "down_proj": "mlp"}.get(module, module.removesuffix("_proj") or _addend(part, i))
        return "residual"
    return "x"


def _addend(part: Part, i: Input) -> str:
    """Where no module is known: what is added to another input is attention's output, what is added to a sum the MLP's."""
    for v in part.needed():
        value = part.values[v]
        if value.op == "add" and value.lanes > 1:
            args = [part.values[a] for a in value.args]
            if any(a.op == "load" and a.attr[0] == i.name for a in args):
                return "attn" if all(a.op == "load" for a in args) else "mlp"
    return "x"


def _producer(program: Program, n: int) -> int:
    """Through the rounding (and a bias) to the matmul that made a value."""
    node = program.nodes[n]
    while node.op == "round" and len(node.operands[0].nodes) == 1:
        n = node.operands[0].nodes[0]
        node = program.nodes[n]
        products = [m for o in node.operands for m in o.nodes if program.nodes[m].op == "mm"]
        if node.op == "add" and len(products) == 1:
            return products[0]
    return n


def _is_activated(part: Part, i: Input) -> bool:
    """True for the input that goes through the activation."""
    curved = [v for v in part.needed() if part.values[v].op in ("exp", "sigmoid", "tanh", "erf", "maximum", "minimum", "sqrt")]
    first = [v for v in curved if part.values[v].op not in ("maximum", "minimum")] or curved
    return any(part.values[u].op == "load" and part.values[u].attr[0] == i.name for u in part.needed(first)) if first else False


def _is_added(part: Part, i: Input) -> bool:
    loads = {v for v in part.needed() if part.values[v].op == "load" and part.values[v].attr[0] == i.name}
    last = {p.value for o in part.outputs for p in o.pieces}
    return all(part.values[v].op == "add" and v in last for v in part.needed() if set(part.values[v].args) & loads)


def _table(part: Part, i: Input) -> str:
    """cos multiplies the lanes that stay in place: the first factor of the first sum."""
    for o in part.outputs:
        for piece in o.pieces:
            value = part.values[piece.value]
            if value.op in ("add", "sub"):
                for side, name in zip(value.args, ("cos", "sin")):
                    if any(part.values[v].op == "load" and part.values[v].attr[0] == i.name for v in part.values[side].args):
                        return name
    return "table"


def _outputs(part: Part) -> dict[str, str]:
    names: dict[str, str] = {}
    for o in part.outputs:
        reduced = any(part.values[v].op == "sum" for p in o.pieces for v in part.needed([p.value]))
        wanted = "out" if part.name else "y" if reduced or len(part.outputs) == 1 else "residual_out"
        name, count = wanted, 2
        while name in names.values():
            name, count = f"{wanted}{count}", count + 1
        names[o.name] = name
    return names


def _bind(part: Part, before: list[Part]) -> None:
    """Tensor names of the region: q for the x of part q; one tensor where parts read the same table."""
    for i in part.inputs:
        shared = [p.bind[j.name] for p in before for j in p.inputs if i.role != "row" and j.source == i.source]
        own = i.name if not part.name else part.name if i.name == "x" else i.name if i.role == "table" else f"{part.name}_{i.name}"
        part.bind[i.name] = shared[0] if shared else own
    for o in part.outputs:
        part.bind[o.name] = f"{part.name}_{o.name}" if part.name else o.name


def _rename(part: Part, inputs: dict[str, str], outputs: dict[str, str]) -> None:
    part.inputs[:] = [replace(i, name=inputs[i.name]) for i in part.inputs]
    part.values[:] = [replace(v, attr=(inputs[v.attr[0]], *v.attr[1:])) if v.op == "load" else v for v in part.values]
    part._known = {v: i for i, v in enumerate(part.values)}
    part.outputs[:] = [replace(o, name=outputs[o.name]) for o in part.outputs]
