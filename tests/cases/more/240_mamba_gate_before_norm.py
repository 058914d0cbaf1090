"""Mamba-2 gated norm, gate before norm: RMSNorm(x * silu(z)) * w. The trainer gates in bf16 and casts xhat, the engine's kernel is fp32 throughout.
Expected moved: silu(z), the gated value and xhat in training only."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["silu_z", "gated", "xhat"], moved_inference_only=[])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 512, generator=g).to(bf), torch.randn(64, 512, generator=g).to(bf), (1 + 0.2 * torch.randn(512, generator=g)).to(bf)


def _xhat(h):
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5)


def inference(x, z, w):
    return (_xhat(x.float() * F.silu(z.float())) * w.float()).to(bf)


def training(x, z, w):
    return w * _xhat((x * F.silu(z)).float()).to(bf)


def aligned(rnd, x, z, w):
    h = rnd("gated", x.float() * rnd("silu_z", F.silu(z.float())))
    return (rnd("xhat", _xhat(h)) * w.float()).to(bf)
