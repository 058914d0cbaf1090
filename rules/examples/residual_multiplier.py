# The case tests/cases/more/238_residual_multiplier.py, shipped with the rules.
"""Residual multiplier (Granite: h + 0.22 * x): eager rounds the scaled branch before the addition, the fused kernel does not.
Expected moved: 0.22*x in training only."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 512, generator=g).to(bf), torch.randn(64, 512, generator=g).to(bf)


def inference(h, x):
    return (h.float() + x.float() * 0.22).to(bf)


def training(h, x):
    return h + x * 0.22
