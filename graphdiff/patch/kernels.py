"""The seam to `emit`: which emitted operators serve which op of a recipe, and the lines of `ops.py` that call them.

An op without its kernels takes plain torch everywhere, and the manifest says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from graphdiff.errors import GraphdiffError
from graphdiff.store import Capture


@dataclass
class Kernels:
    """files: path below `kernels/` -> text. signatures by operator. missing: op -> why it has no kernel."""

    files: dict[str, str] = field(default_factory=dict)
    signatures: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def serve(self, op: str) -> bool:
        return op not in self.missing


@dataclass(frozen=True)
class Call:
    """needs: operator -> (names of its inputs, of its outputs). body: lines of ops.py, given the signatures."""

    needs: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]
    body: Callable[[dict[str, Any]], str]


def kernels_for(engine: Capture, ops: list[str], namespace: str, everything: bool = False) -> Kernels:
    """Kernels of the engine's own regions, for these ops; `everything`: for every region, whether an op needs it or not."""
    found = Kernels()
    wanted = {op: CALLS[op] for op in ops if op in CALLS}
    try:
        made = _emitted(engine, None if everything else {name for call in wanted.values() for name in call.needs}, namespace)
    except GraphdiffError as error:
        found.missing = {op: str(error) for op in wanted}
        return found
    emitted, reasons = made
    for op, call in wanted.items():
        found.missing.update({op: why for why in [_misfit(call, emitted, reasons)] if why})
    together = [op for op in RESIDUAL if op in wanted]
    for op in [o for o in together if o in found.missing][:1]:  # they hand each other the carried sum: all or none
        found.missing.update({o: found.missing[op] for o in together if o not in found.missing})
    used = {name for op, call in wanted.items() if found.serve(op) for name in call.needs} | (set(emitted) if everything else set())
    if used:
        from graphdiff.emit import emit_package

        found.files = emit_package([emitted[name] for name in sorted(used)])
        found.signatures = {name: emitted[name].signature for name in sorted(used)}
    return found


def _emitted(engine: Capture, names: set[str] | None, namespace: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Emitted regions by name, one for all layers, and why others have none."""
    from graphdiff.emit import emit_region, extract_regions

    regions, refused = extract_regions(engine.program, len(engine.header.probe.tokens))
    emitted: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for region in regions:
        if names is not None and region.name not in names or region.name in reasons:
            continue
        try:
            made = emit_region(region, versions=engine.header.versions, target=engine.header.target, namespace=namespace)
        except GraphdiffError as error:
            reasons[region.name] = str(error)
            continue
        known = emitted.setdefault(region.name, made)
        if known.meta["fingerprint"] != made.meta["fingerprint"]:
            reasons[region.name] = f"the engine's layers differ in {region.name}"
    for why in refused:
        for name in (names or set()) - set(emitted):
            reasons.setdefault(name, why.reason)
    return {n: e for n, e in emitted.items() if n not in reasons}, reasons


def _misfit(call: Call, emitted: dict[str, Any], reasons: dict[str, str]) -> str:
    for name, (inputs, outputs) in call.needs.items():
        if name not in emitted:
            return reasons.get(name, f"the engine's code has no region that is {name}")
        signature = emitted[name].signature
        if tuple(t.name for t in signature.inputs) != inputs or tuple(t.name for t in signature.outputs) != outputs:
            return f"the engine's {name} takes {', '.join(t.name for t in signature.inputs)}, and the recipe's op {', '.join(inputs)}"
    return ""


# ---- the lines of ops.py
def _width(signatures: dict[str, Any], operator: str, name: str) -> int:
    return next(t.width for t in signatures[operator].inputs if t.name == name)


def _qk_norm_rope(signatures: dict[str, Any]) -> str:
    width = _width(signatures, "qk_norm_rope", "cos")
    return f'''
def qk_norm_rope(
    q: Tensor, k: Tensor, q_weight: Tensor, k_weight: Tensor, cos: Tensor, sin: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    if _fused(q):
        q, k = kernels.qk_norm_rope(q, k, q_weight, k_weight, cos[..., :{width}], sin[..., :{width}])
        return q.transpose(1, 2), k.transpose(1, 2)
    return plain.qk_norm_rope(q, k, q_weight, k_weight, cos, sin, eps)
'''


def _rope(signatures: dict[str, Any]) -> str:
    width = _width(signatures, "rope", "cos")
    return f'''
def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    if _fused(q):
        q, k = kernels.rope(q, k, cos[..., :{width}], sin[..., :{width}])
        return q.transpose(1, 2), k.transpose(1, 2)
    return plain.rope(q, k, cos, sin)
'''


def _swiglu(_: dict[str, Any]) -> str:
    return '''
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return kernels.swiglu(gate, up) if _fused(gate) else plain.swiglu(gate, up)
'''


def _input_norm(_: dict[str, Any]) -> str:
    return '''
def input_norm(addends: tuple[Tensor, ...], weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    if not _fused(addends[0]):
        return plain.input_norm(addends, weight, eps)
    if len(addends) == 1:
        return addends[0], kernels.rms_norm(addends[0], weight)
    return kernels.input_layernorm(*addends, weight)
'''


def _post_attention_norm(_: dict[str, Any]) -> str:
    return '''
def post_attention_norm(o: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, ...]:
    if not _fused(o):
        return plain.post_attention_norm(o, residual, weight, eps)
    normed, carry = kernels.post_attention_layernorm(o, residual, weight)
    return normed, o, residual, carry  # the carry holds no numbers: the gradient of o + residual comes back through it
'''


def _final_norm(_: dict[str, Any]) -> str:
    return '''
def final_norm(addends: tuple[Tensor, ...], weight: Tensor, eps: float) -> Tensor:
    return kernels.final_norm(*addends, weight) if _fused(addends[0]) else plain.final_norm(addends, weight, eps)
'''


RESIDUAL = ("input_norm", "post_attention_norm", "final_norm")
_SUMMANDS = ("mlp", "attn", "residual", "carry", "weight")

CALLS = {
    "qk_norm_rope": Call({"qk_norm_rope": (("q", "k", "q_weight", "k_weight", "cos", "sin"), ("q_out", "k_out"))}, _qk_norm_rope),
    "rope": Call({"rope": (("q", "k", "cos", "sin"), ("q_out", "k_out"))}, _rope),
    "swiglu": Call({"swiglu": (("gate", "up"), ("y",))}, _swiglu),
    "input_norm": Call({"rms_norm": (("x", "weight"), ("y",)), "input_layernorm": (_SUMMANDS, ("residual_out", "y"))}, _input_norm),
    "post_attention_norm": Call({"post_attention_layernorm": (("attn", "residual", "weight"), ("y", "carry"))}, _post_attention_norm),
    "final_norm": Call({"final_norm": (_SUMMANDS, ("y",))}, _final_norm),
}
