"""The patch's operators on made inputs, and what stands in their place in transformers and in Liger-Kernel (for gpu.py)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

OPS = ("qk_norm_rope", "rope", "swiglu", "post_attention_norm", "input_norm", "first_norm", "final_norm")
"""first_norm: the input norm of the first layer, which reads the embedding alone."""


# ---- operators: the same inputs for the kernels and for plain torch
def inputs(op: str, config: Any, shape: tuple[int, int], kind: str, device: str) -> dict[str, Any]:
    """BF16 tensors by name. Rows are of `kind`, weights and tables random."""
    import numpy as np
    import torch

    from graphdiff.verify.inputs import numbers

    rng = np.random.default_rng(0)
    hidden, width = config.hidden_size, config.head_dim

    def rows(*sizes: int) -> Any:
        made = numbers(kind, int(np.prod(shape + sizes)), "bfloat16", rng)
        return torch.from_numpy(made).reshape(*shape, *sizes).to(device, torch.bfloat16)

    def weight(n: int) -> Any:
        return torch.from_numpy(1 + 0.1 * rng.standard_normal(n).astype(np.float32)).to(device, torch.bfloat16)

    if op in ("qk_norm_rope", "rope"):
        found = {"q": rows(config.num_attention_heads, width), "k": rows(config.num_key_value_heads, width)}
        if op == "qk_norm_rope":
            found |= {"q_weight": weight(width), "k_weight": weight(width)}
        angle = torch.from_numpy(6 * rng.random((*shape, width // 2), np.float32)).repeat(1, 1, 2)
        return found | {"cos": angle.cos().to(device, torch.bfloat16), "sin": angle.sin().to(device, torch.bfloat16)}
    if op == "swiglu":
        return {"gate": rows(config.intermediate_size), "up": rows(config.intermediate_size)}
    names = {"post_attention_norm": ("attn", "residual"), "first_norm": ("x",)}.get(op, ("mlp", "attn", "residual"))
    return {**{n: rows(hidden) for n in names}, "weight": weight(hidden)}


def called(ops: Any, op: str, x: dict[str, Any], eps: float, fused: bool) -> tuple[Any, ...]:
    """The operator's outputs: with kernels (`carry` of x stands for the inner sum in autograd's graph), or plain."""
    function = getattr(ops, "input_norm" if op == "first_norm" else op)
    with forced(ops, fused):
        if op in ("input_norm", "final_norm"):
            addends = (x["mlp"], x["attn"], x["residual"], *([x["carry"]] if fused else []))
            out = function(addends, x["weight"], eps)
        elif op == "first_norm":
            out = function((x["x"],), x["weight"], eps)[1]
        elif op == "swiglu":
            out = function(x["gate"], x["up"])
        else:
            out = function(*[x[n] for n in x if n != "carry"], *([] if op == "rope" else [eps]))
    out = out if isinstance(out, tuple) else (out,)
    return out[:1] if op == "post_attention_norm" else out


@contextlib.contextmanager
def forced(ops: Any, fused: bool) -> Iterator[None]:
    kept, ops._fused = ops._fused, lambda x: fused
    try:
        yield
    finally:
        ops._fused = kept


def leaves(op: str, x: dict[str, Any], fused: bool) -> dict[str, Any]:
    """Copies that want gradients; the kernels hand that of the inner sum to `carry`."""
    import torch

    found = {n: t.detach().clone().requires_grad_(n not in ("cos", "sin")) for n, t in x.items()}
    if fused and op in ("input_norm", "final_norm"):
        found["carry"] = torch.empty((), dtype=x["mlp"].dtype, device=x["mlp"].device).expand(x["mlp"].shape).requires_grad_()
    return found


def run(ops: Any, op: str, x: dict[str, Any], eps: float, fused: bool, backward: bool = True) -> tuple[list[Any], dict[str, Any]]:
    """(outputs, gradients by input)."""
    import torch

    x = leaves(op, x, fused)
    out = called(ops, op, x, eps, fused)
    if not backward:
        return [o.detach() for o in out], {}
    generator = torch.Generator().manual_seed(1)
    seeds = [torch.randn(o.shape, generator=generator).to(o.device, o.dtype) for o in out]
    asked = [n for n, t in x.items() if t.requires_grad]
    made = dict(zip(asked, torch.autograd.grad(out, [x[n] for n in asked], seeds, allow_unused=True)))
    if "carry" in made:  # one gradient for both addends of the inner sum
        made |= {"attn": made["carry"], "residual": made["carry"]}
        del made["carry"]
    return [o.detach() for o in out], made


# ---- what stands in transformers for each region, and in Liger
def eager_region(op: str, rotate: Callable[..., Any], eps: float) -> Callable[[dict[str, Any]], Any]:
    import torch

    def norm(x: Any, weight: Any) -> Any:
        wide = x.float()
        return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)

    def rope(x: dict[str, Any], q: Any, k: Any) -> Any:
        return rotate(q.transpose(1, 2), k.transpose(1, 2), x["cos"], x["sin"])

    def summed(x: dict[str, Any], name: str) -> Any:  # transformers keeps the inner sum of `residual` rounded
        h = x["residual"] + x[name]
        return norm(h, x["weight"]), h

    return {"qk_norm_rope": lambda x: rope(x, norm(x["q"], x["q_weight"]), norm(x["k"], x["k_weight"])),
            "rope": lambda x: rope(x, x["q"], x["k"]), "swiglu": lambda x: torch.nn.functional.silu(x["gate"]) * x["up"],
            "post_attention_norm": lambda x: summed(x, "attn"), "input_norm": lambda x: summed(x, "mlp"),
            "first_norm": lambda x: norm(x["x"], x["weight"]), "final_norm": lambda x: summed(x, "mlp")[0]}[op]


def liger_region(op: str, eps: float) -> Callable[[dict[str, Any]], Any]:
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction
    from liger_kernel.transformers.rope import liger_rotary_pos_emb

    def norm(x: Any, weight: Any) -> Any:
        return LigerRMSNormFunction.apply(x, weight, eps, 0.0, "llama", False)

    def summed(x: dict[str, Any], name: str) -> Any:
        h = x["residual"] + x[name]
        return norm(h, x["weight"]), h

    def rope(x: dict[str, Any], q: Any, k: Any) -> Any:  # it rotates in place
        return liger_rotary_pos_emb(q.transpose(1, 2).clone(), k.transpose(1, 2).clone(), x["cos"], x["sin"])

    return {"qk_norm_rope": lambda x: rope(x, norm(x["q"], x["q_weight"]), norm(x["k"], x["k_weight"])), "rope": lambda x: rope(x, x["q"], x["k"]),
            "swiglu": lambda x: LigerSiLUMulFunction.apply(x["gate"], x["up"]), "post_attention_norm": lambda x: summed(x, "attn"),
            "input_norm": lambda x: summed(x, "mlp"),
            "first_norm": lambda x: norm(x["x"], x["weight"]), "final_norm": lambda x: summed(x, "mlp")[0]}[op]
