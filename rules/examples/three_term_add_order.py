# The case tests/cases/public/29_three_term_add_order.py, shipped with the rules.
"""Three-term residual add order (Qwen3-VL deepstack): same number of casts, different partial sum rounded.
Addresses: https://github.com/sgl-project/sglang/pull/34690 , https://github.com/sgl-project/sglang/pull/14636 (h+r+d != h+d+r; grounding regressed ~150 px)
inference: bf16(bf16(h+d)+r).   training: bf16(bf16(h+r)+d).
Expected: a rounding MOVED from h+d to h+r (one on each side), even though cast counts match. 0..1 ulp typically, many at cancellation."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return tuple((s * torch.randn(64, 2048, generator=g)).to(bf) for s in (1.0, 4.0, 0.5))


def inference(h, r, d):
    return (h + d) + r


def training(h, r, d):
    return (h + r) + d
