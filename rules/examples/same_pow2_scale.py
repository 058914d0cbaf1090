# The case tests/cases/public/108_neg_pow2_scale.py, shipped with the rules.
"""NEGATIVE (subtle). Attention scale 1/8 (head_dim 64) applied to q in bf16 before QK^T vs to the fp32 scores after: a power of two is exact in bf16 (no subnormals),
so the extra rounding never changes a bit. Contrast 25_prescaled_query (head_dim 128)."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(4, 64, 64, generator=g).to(bf), torch.randn(4, 64, 64, generator=g).to(bf)


def inference(q, k):
    return (q.float() @ k.float().transpose(1, 2)) * 0.125


def training(q, k):
    return (q * 0.125).float() @ k.float().transpose(1, 2)
