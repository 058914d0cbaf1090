"""NEGATIVE. An FP32 cos/sin cache against angles turned into cos and sin in the graph; rotation in fp32, one cast, on both."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    ang = torch.outer(torch.arange(32).float() + 12, 1e4 ** (-torch.arange(0, 64, 2).float() / 64))
    return torch.randn(32, 4, 64, generator=g).to(bf), ang, ang.cos(), ang.sin()


def inference(q, ang, cos, sin):
    a, b = q.float().chunk(2, -1)
    c, s = cos[:, None], sin[:, None]
    return torch.cat((a * c - b * s, b * c + a * s), -1).to(bf)


def training(q, ang, cos, sin):
    emb = torch.cat((ang, ang), -1)[:, None]
    x = q.float()
    return (x * emb.cos() + torch.cat((-x[..., 32:], x[..., :32]), -1) * emb.sin()).to(bf)
