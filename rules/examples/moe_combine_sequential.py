# The case tests/cases/more/224_moe_combine_sequential.py, shipped with the rules.
"""MoE combine, four experts per token added one after the other in bf16 by the trainer; in one fp32 sum by the engine.
Expected moved: the weighted term and the partial sums of two and of three terms, in training only."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 4, 256, generator=g).to(bf), torch.softmax(torch.randn(32, 4, generator=g), -1).to(bf)


def inference(y, w):
    t = y.float() * w.float()[..., None]
    return (t[:, 0] + t[:, 1] + t[:, 2] + t[:, 3]).to(bf)


def training(y, w):
    t = y * w[..., None]
    out = torch.zeros_like(y[:, 0])
    for i in range(4):
        out = out + t[:, i]
    return out
