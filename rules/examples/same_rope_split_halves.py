# The case tests/cases/public/101_neg_rope_split_halves.py, shipped with the rules.
"""NEGATIVE. RoPE by rotate_half+cat (HF) vs split halves a*c-b*s | b*c+a*s (vLLM native), both with bf16 op-by-op rounding.
Same schedule: each product rounded, then the sum/difference rounded; negation is exact; addition commutes. Must NOT be flagged."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    ang = torch.outer(torch.arange(64).float(), 1e4 ** (-torch.arange(0, 64, 2).float() / 64))
    return torch.randn(64, 8, 64, generator=g).to(bf), ang.cos().to(bf)[:, None], ang.sin().to(bf)[:, None]


def inference(q, c, s):
    a, b = torch.chunk(q, 2, -1)
    return torch.cat((a * c - b * s, b * c + a * s), -1)


def training(q, c, s):
    c, s = torch.cat((c, c), -1), torch.cat((s, s), -1)
    h = q.shape[-1] // 2
    return q * c + torch.cat((-q[..., h:], q[..., :h]), -1) * s
