"""NEGATIVE. silu as x / (1 + exp(-x)) and sigmoid as 1 / (1 + exp(-x)) in fp32, silu rounded before the product on both sides."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
EXPECT = dict(verdict="same", noise="FP32 spelling")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 256, generator=g).to(bf), torch.randn(64, 256, generator=g).to(bf)


def inference(g, u):
    x = g.float()
    return (x / (1 + torch.exp(-x))).to(bf) * u, (1 / (1 + torch.exp(-x))).to(bf)


def training(g, u):
    return F.silu(g) * u, torch.sigmoid(g)
