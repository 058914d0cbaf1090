# The case tests/cases/more/331_neg_moe_combine_fp32.py, shipped with the rules.
"""NEGATIVE. Two experts per token combined in fp32 by a loop or by one sum over the axis, one cast at the end."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 2, 256, generator=g).to(bf), torch.softmax(torch.randn(32, 2, generator=g), -1)


def inference(y, w):
    return (y.float() * w[..., None]).sum(1).to(bf)


def training(y, w):
    out = torch.zeros(32, 256)
    for i in range(2):
        out = out + w[:, i, None] * y[:, i]
    return out.to(bf)
