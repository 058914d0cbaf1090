# The case tests/cases/public/102_neg_rmsnorm_spelling.py, shipped with the rules.
"""NEGATIVE. RMSNorm spelled x.pow(2) / rsqrt / w*x vs x*x / 1/sqrt-free square / x*w: same casts, commuted operands."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 2048, generator=g).to(bf), (1 + 0.3 * torch.randn(2048, generator=g)).to(bf)


def inference(x, w):
    h = x.to(torch.float32)
    h = torch.rsqrt(1e-6 + (h * h).mean(dim=-1, keepdim=True)) * h
    return h.to(w.dtype) * w


def training(x, w):
    h = x.float()
    v = h.pow(2).mean(-1, keepdim=True)
    return w * (h * torch.rsqrt(v + 1e-6)).to(x.dtype)
