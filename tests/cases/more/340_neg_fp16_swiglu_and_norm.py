"""NEGATIVE in FP16. SwiGLU with silu rounded and RMSNorm with xhat rounded on both sides, islands and fused spellings."""
import torch
import torch.nn.functional as F
h16 = torch.float16
EXPECT = dict(verdict="same", noise="FP32 reduction order")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 512, generator=g).to(h16), torch.randn(32, 512, generator=g).to(h16), (1 + 0.3 * torch.randn(512, generator=g)).to(h16)


def inference(g, u, w):
    y = F.silu(g.float()).half() * u
    return (F.rms_norm(y.float(), (512,), eps=1e-6).half().float() * w.float()).half()


def training(g, u, w):
    h = (F.silu(g) * u).float()
    return w * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(w.dtype)
