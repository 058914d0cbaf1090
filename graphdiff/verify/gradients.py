"""Gradients of a patch's ops against float64, of the whole model against checkpointing and a float64 model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from graphdiff.report.words import percent
from graphdiff.verify.model import Check

HALF_ULP = 2.0**-8
"""Relative error of one rounding to bfloat16, at most; gradients are rounded once, at the region's inputs."""

TOLERANCE = 2 * HALF_ULP
"""A norm-wise error of two such roundings: one at the output, one where autograd adds two uses."""

F64 = torch.float64


# ---- the ops in real arithmetic: no rounding anywhere
def _normed(x: torch.Tensor, eps: float) -> torch.Tensor:
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return x * cos.unsqueeze(1) + torch.cat((-b, a), -1) * sin.unsqueeze(1)


def _qk_norm_rope(q, k, qw, kw, cos, sin, eps):
    return tuple(_rotated(_normed(x.transpose(1, 2), eps) * w, cos, sin) for x, w in ((q, qw), (k, kw)))


def _rope(q, k, cos, sin):
    return tuple(_rotated(x.transpose(1, 2), cos, sin) for x in (q, k))


def _swiglu(gate, up):
    return (gate * torch.sigmoid(gate) * up,)


def _input_norm(d, o, r, w, eps):
    return d + (o + r), _normed(d + (o + r), eps) * w


def _final_norm(d, o, r, w, eps):
    return (_normed(d + (o + r), eps) * w,)


def _post_attention_norm(o, r, w, eps):
    return (_normed(o + r, eps) * w,)


def _cases(config: dict[str, Any], ops: Any, device: str = "cpu", carried: bool = False) -> dict[str, tuple[Callable, Callable, list[torch.Tensor]]]:
    """op -> (the package's, the one in real arithmetic, inputs). carried: sums as the operators take them, with the carry
    that stands for the inner sum: whoever makes it is part of the case."""
    torch.manual_seed(0)
    tokens, hidden, heads = 7, config["hidden_size"], config["num_attention_heads"]
    kv, width = config["num_key_value_heads"] or heads, config["head_dim"] or hidden // heads
    eps, addends = config["rms_norm_eps"], _addends(ops)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(shape).bfloat16().to(device)

    def norm(n: int) -> torch.Tensor:
        return (1 + 0.1 * torch.randn(n)).bfloat16().to(device)

    q, k = numbers(2, tokens, heads, width), numbers(2, tokens, kv, width)
    angle = torch.rand(2, tokens, width // 2).repeat(1, 1, 2) * 6
    cos, sin = (t.bfloat16().to(device) for t in (angle.cos(), angle.sin()))
    streams = [numbers(2, tokens, hidden) for _ in range(addends)]
    while len(streams) < 3:  # two addends: the inner sum is one of them
        streams.append(torch.zeros(2, tokens, hidden).bfloat16().to(device))
    scale = norm(hidden)

    def summands(a: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (a[0], *ops.post_attention_norm(a[1], a[2], scale, eps)[1:]) if carried else a[:addends]

    stored = not isinstance(_residual(ops, streams[0], scale), tuple)

    cases = {
        "qk_norm_rope": (lambda *a: ops.qk_norm_rope(*a, cos, sin, eps), lambda *a: _qk_norm_rope(*a, cos.to(F64), sin.to(F64), eps),
                         [q, k, norm(width), norm(width)]),
        "rope": (lambda *a: ops.rope(*a, cos, sin), lambda *a: _rope(*a, cos.to(F64), sin.to(F64)), [q, k]),
        "swiglu": (lambda *a: ops.swiglu(*a), _swiglu, [numbers(2, tokens, config["intermediate_size"]) for _ in range(2)]),
        "input_norm": (lambda *a: ops.input_norm(summands(a), a[3], eps)[not stored:], lambda *a: _input_norm(*a, eps)[not stored:],
                       [*streams, norm(hidden)]),
        "final_norm": (lambda *a: ops.final_norm(summands(a), a[3], eps), lambda *a: _final_norm(*a, eps), [*streams, norm(hidden)]),
        "post_attention_norm": (lambda *a: ops.post_attention_norm(a[0], a[1] if stored else (a[1],), a[2], eps)[:1], lambda *a: _post_attention_norm(*a, eps),
                                [streams[0], streams[1], norm(hidden)]),
    }
    return {name: case for name, case in cases.items() if hasattr(ops, name)}


def _addends(ops: Any) -> int:
    """How many the sum between layers has, embedding aside: 2 if the inner sum is stored rounded."""
    return len(ops.plain.summands(tuple(range(3)))) if hasattr(ops.plain, "summands") else 3


def _residual(ops: Any, x: torch.Tensor, weight: torch.Tensor) -> Any:
    """What the input norm passes on as the stream: a tensor, or addends."""
    return ops.plain.input_norm((x,), weight, 1e-6)[0] if hasattr(ops.plain, "input_norm") else x


def check_ops(config: dict[str, Any], ops: Any, names: list[str]) -> Check:
    """Every op's gradients in plain torch against float64 autograd of the same function without any rounding."""
    errors = {name: _gradient_error(*case) for name, case in _cases(config, ops).items() if name in names}
    worst = max(errors, key=errors.__getitem__)
    return Check(name="gradients of the ops", ok=errors[worst] <= TOLERANCE, numbers={"relative_error": errors, "tolerance": TOLERANCE},
                 detail=f"{len(errors)} ops against float64; largest relative error {errors[worst]:.2g} ({worst}), at most {TOLERANCE:.2g} allowed")


def _gradient_error(own: Callable, exact: Callable, inputs: list[torch.Tensor]) -> float:
    one = [x.clone().requires_grad_() for x in inputs]
    two = [x.to(F64).requires_grad_() for x in inputs]
    got, wanted = own(*one), exact(*two)
    got = got if isinstance(got, tuple) else (got,)
    seeds = [torch.randn(y.shape, device=y.device).to(y.dtype) for y in got]
    grads = torch.autograd.grad(got, one, seeds, allow_unused=True)
    reference = torch.autograd.grad(wanted, two, [s.to(F64) for s in seeds])
    return max(_distance(g, r) for g, r in zip(grads, reference, strict=True) if g is not None)


def check_kernels(manifest: dict[str, Any], ops: Any, names: list[str]) -> Check:
    """The operators of `kernels/` against plain torch, forward, and their gradients against float64.

    On a GPU the Triton kernels run; without one the operators take their own plain torch path, and the check says so.
    """
    served = [n for n in names if n not in manifest["kernels"]["missing"]]
    if not served:
        return Check(name="operators", ok=None, detail="the patch has no kernels for it: " + "; ".join(sorted({manifest["kernels"]["missing"][n] for n in names}))[:200])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cases = {n: c for n, c in _cases(manifest["model"]["config"], ops, device, carried=True).items() if n in served}
    plain = {n: c for n, c in _cases(manifest["model"]["config"], ops, device).items() if n in served}
    fused, ops._fused = ops._fused, lambda x: False
    try:
        wanted = {n: own(*inputs) for n, (own, _, inputs) in plain.items()}
        ops._fused = lambda x: True
        got = {n: own(*inputs) for n, (own, _, inputs) in cases.items()}
        errors = {n: _gradient_error(*c) for n, c in cases.items()}
    finally:
        ops._fused = fused
    differing = {n: _differing(got[n], wanted[n]) for n in served}
    worst, apart = max(errors, key=errors.__getitem__), max(differing.values())
    ok = errors[worst] <= TOLERANCE and apart <= FLIPS
    if not apart:
        said = "the same bits"
    elif apart <= FLIPS:
        said = f"{_share(apart)} of elements differ at most, as many as float32 order of sums explains"
    else:
        far = sorted(n for n in differing if differing[n] > FLIPS)
        said = f"{', '.join(far)}: {_share(apart)} of elements differ, more than float32 order of sums explains (at most {_share(FLIPS)})"
    how = "Triton kernels on the GPU" if device == "cuda" else "their CPU path, no GPU here"
    return Check(name="operators", ok=ok, numbers={"relative_error": errors, "differing": differing, "device": device},
                 detail=f"{len(served)} against plain torch ({how}): {said}; "
                 f"gradients within {errors[worst]:.2g} of float64 ({worst})")


FLIPS = 0.002
"""Share of elements that may differ where sums of float32 are added in another order: near ties that round the other way."""


def _share(share: float) -> str:
    return percent(round(share * 10**9), 10**9)


def _differing(got: Any, wanted: Any) -> float:
    got, wanted = (x if isinstance(x, tuple) else (x,) for x in (got, wanted))
    return max((g != w).float().mean().item() for g, w in zip(got, wanted, strict=False))


def _distance(x: torch.Tensor, wanted: torch.Tensor) -> float:
    return ((x.to(F64) - wanted).norm() / wanted.norm().clamp_min(1e-300)).item()


# ---- the whole model
def gradients(model: Any, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """Gradient of the next-token loss by parameter."""
    model.zero_grad(set_to_none=True)
    logits = model(input_ids=ids, use_cache=False).logits
    logits = logits.float() if logits.dtype != F64 else logits
    torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    found = {name: p.grad.detach().clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


def check_checkpointing(model: Any, ids: torch.Tensor) -> Check:
    """Both kinds of activation checkpointing give the gradients that none gives, bit for bit."""
    plain = gradients(model, ids)
    differing: dict[str, int] = {}
    for reentrant in (False, True):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
        if reentrant:
            model.enable_input_require_grads()
        try:
            other = gradients(model, ids)
        finally:
            model.gradient_checkpointing_disable()
            if reentrant:
                model.disable_input_require_grads()
        differing["reentrant" if reentrant else "non-reentrant"] = sum(not torch.equal(plain[n], other.get(n, torch.empty(0))) for n in plain)
    bad = [name for name, n in differing.items() if n]
    return Check(name="checkpointing", ok=not bad, numbers=differing,
                 detail=f"gradients of {len(plain)} parameters are the same bits with both kinds" if not bad else
                 "; ".join(f"{name}: {differing[name]} of {len(plain)} parameters' gradients differ" for name in bad))


def check_model(patched: dict[str, torch.Tensor], original: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> Check:
    """The patched model's gradients are no further from a float64 model's than the unpatched one's."""
    def error(found: dict[str, torch.Tensor]) -> float:
        apart = sum((found[n].to(F64) - g.to(F64)).pow(2).sum() for n, g in exact.items())
        return (apart / sum(g.to(F64).pow(2).sum() for g in exact.values())).sqrt().item()

    missing = sorted(set(original) - set(patched))
    before, after = error(original), error(patched) if not missing else float("nan")
    ok = not missing and after <= 1.25 * before
    return Check(name="gradients of the model", ok=ok, numbers={"error_before": before, "error_after": after},
                 detail=f"{len(missing)} parameters have no gradient, {missing[0]} among them" if missing else
                 f"relative error against a float64 model {after:.3g}, {before:.3g} without the patch")
