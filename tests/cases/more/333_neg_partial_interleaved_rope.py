"""NEGATIVE. Partial interleaved RoPE, bf16 op by op on both: strided slices and stack against a reshaped pair axis and a signed swap."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    ang = torch.outer(torch.arange(32).float() + 4, 1e4 ** (-torch.arange(0, 32, 2).float() / 32))
    return torch.randn(32, 4, 64, generator=g).to(bf), ang.cos().to(bf)[:, None], ang.sin().to(bf)[:, None]


def inference(q, c, s):
    a, b = q[..., 0:32:2], q[..., 1:32:2]
    return torch.cat((torch.stack((a * c - b * s, b * c + a * s), -1).flatten(-2), q[..., 32:]), -1)


def training(q, c, s):
    p = q[..., :32].unflatten(-1, (16, 2))
    swapped = torch.stack((-p[..., 1], p[..., 0]), -1)
    y = p * c[..., None] + swapped * s[..., None]
    return torch.cat((y.reshape(32, 4, 32), q[..., 32:]), -1)
