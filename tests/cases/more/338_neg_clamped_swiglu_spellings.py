"""NEGATIVE. Clamped SwiGLU in one fp32 island: clamp before the upcast or after, minimum against clamp, interleaved slices against a view."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return ((4 * torch.randn(32, 256, generator=g)).to(bf),)


def inference(x):
    p = x.view(32, 128, 2).float()
    g, u = torch.clamp(p[..., 0], max=7.0), torch.clamp(p[..., 1], -7.0, 7.0)
    return ((u + 1) * (g * torch.sigmoid(1.702 * g))).to(bf)


def training(x):
    g, u = x[..., ::2], x[..., 1::2]
    g = torch.minimum(g, torch.tensor(7.0, dtype=bf)).float()
    u = u.clamp(-7.0, 7.0).float()
    return (g * torch.sigmoid(g * 1.702) * (u + 1)).to(bf)
