# The case tests/cases/public/25_prescaled_query.py, shipped with the rules.
"""Attention scale folded into q: q*scale rounded to bf16 before QK^T vs fp32 scale of the fp32 scores (head_dim 128: scale is not a power of two).
Addresses: https://github.com/antirez/h3.c/issues/3 , https://github.com/ml-explore/mlx/pull/3119 (scale downcast to bf16)
inference: S*scale in fp32.    training: q*scale -> bf16 -> QK^T in fp32.
Expected moved: scaled q rounded in training only. Output fp32 scores. With head_dim 64 (scale 0.125) the same move is EXACT: see 108_neg."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(4, 64, 128, generator=g).to(bf), torch.randn(4, 64, 128, generator=g).to(bf)


def inference(q, k):
    return (q.float() @ k.float().transpose(1, 2)) * 128 ** -0.5


def training(q, k):
    return (q * 128 ** -0.5).float() @ k.float().transpose(1, 2)
