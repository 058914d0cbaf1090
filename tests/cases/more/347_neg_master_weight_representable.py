"""NEGATIVE. fp32 copies of bf16 weights against the weights: a leaf's dtype alone rounds nothing."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    w = (1 + 0.3 * torch.randn(256, generator=g)).to(bf)
    return torch.randn(32, 256, generator=g).to(bf), w, w.float()


def _xhat(x):
    h = x.float()
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)


def inference(x, w, wide):
    return (_xhat(x) * wide).to(bf)


def training(x, w, wide):
    return (_xhat(x) * w.float()).to(bf)
