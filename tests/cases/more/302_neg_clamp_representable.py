"""NEGATIVE. Clamping at bounds bf16 can hold (7, -7, 0.5) before or after the rounding (clamped SwiGLU does either)."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return (4 * torch.randn(32, 256, generator=g)).to(bf), (4 * torch.randn(32, 256, generator=g)).to(bf)


def inference(x, r):
    s = x.float() + r.float()
    return s.clamp(-7.0, 7.0).to(bf), s.clamp(min=0.5).to(bf)


def training(x, r):
    s = x + r
    return torch.clamp(s, -7.0, 7.0), s.clamp_min(0.5)
