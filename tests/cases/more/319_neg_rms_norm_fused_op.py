"""NEGATIVE. F.rms_norm on bf16 (fp32 inside, one rounding) against the norm by hand with one cast."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
EXPECT = dict(verdict="same", noise="FP32 reduction order")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 512, generator=g).to(bf), (1 + 0.3 * torch.randn(512, generator=g)).to(bf)


def inference(x, w):
    return F.rms_norm(x, (512,), w, 1e-6)


def training(x, w):
    h = x.float()
    return (w * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6))).to(bf)
