"""NEGATIVE. rsqrt, 1/sqrt, division by sqrt and pow(-0.5); x**2, x*x, square: all inside one fp32 island."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same", noise="FP32 spelling")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 256, generator=g).to(bf), (1 + 0.3 * torch.randn(256, generator=g)).to(bf)


def inference(x, w):
    h = x.float()
    return (h / torch.sqrt((h ** 2).mean(-1, keepdim=True) + 1e-6)).to(bf) * w, (h * (1 / (torch.square(h).mean(-1, keepdim=True) + 1e-6).sqrt())).to(bf)


def training(x, w):
    h = x.float()
    n = (h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-6)).to(bf)
    return w * n, (h * torch.pow(h.pow(2).mean(-1, keepdim=True) + 1e-6, -0.5)).to(bf)
