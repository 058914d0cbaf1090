"""Residual add and RMSNorm, mirrored: the engine's kernel stores the sum and reads it back, the trainer's fused add+norm keeps it in registers.
Expected moved: the residual sum the norm reads, in inference only. The stored residual is the same."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=[], moved_inference_only=["residual_sum_seen_by_norm"], same_outputs=[1])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 1024, generator=g).to(bf), (3 * torch.randn(32, 1024, generator=g)).to(bf), (1 + 0.3 * torch.randn(1024, generator=g)).to(bf)


def inference(x, r, w):
    r = r + x
    h = r.float()
    return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * w.float()).to(bf), r


def training(x, r, w):
    s = x.float() + r.float()
    return (s * torch.rsqrt((s * s).mean(-1, keepdim=True) + 1e-6) * w.float()).to(bf), s.to(bf)


def aligned(rnd, x, r, w):
    s = x.float() + r.float()
    h = rnd("residual_sum_seen_by_norm", s)
    return (h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-6) * w.float()).to(bf), s.to(bf)
