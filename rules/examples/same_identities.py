# The case tests/cases/more/336_neg_identities.py, shipped with the rules.
"""NEGATIVE. Multiplying by 1, adding 0, dropout in evaluation, a cast to the own dtype: no rounding anywhere."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 256, generator=g).to(bf), torch.randn(32, 256, generator=g).to(bf)


def inference(x, r):
    return F.dropout(x * 1.0 + 0.0, 0.1, training=False).to(bf) + r * 1


def training(x, r):
    return x + r
