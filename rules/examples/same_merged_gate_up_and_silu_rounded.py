# The case tests/cases/more/341_neg_merged_gate_up_and_silu_rounded.py, shipped with the rules.
"""NEGATIVE. Merged gate_up projection with the fused activation that rounds silu before the product, against two projections and eager code."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(16, 128, generator=g).to(bf), (0.1 * torch.randn(192, 128, generator=g)).to(bf), (0.1 * torch.randn(192, 128, generator=g)).to(bf)


def inference(x, wg, wu):
    y = F.linear(x, torch.cat((wg, wu)))
    return (F.silu(y[..., :192].float()).to(bf).float() * y[..., 192:].float()).to(bf)


def training(x, wg, wu):
    return F.silu(F.linear(x, wg)) * F.linear(x, wu)
