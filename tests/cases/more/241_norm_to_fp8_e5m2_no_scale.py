"""RMSNorm stored as e5m2 without a scale: quantised from fp32 by a fused kernel, from the bf16 result by eager code (double rounding).
Expected moved: the norm's output, rounded to bf16 in training only."""
import torch
bf, f5 = torch.bfloat16, torch.float8_e5m2
EXPECT = dict(verdict="moved", moved_training_only=["norm_out"], moved_inference_only=[], out_dtype="float8_e5m2 as float32")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 1024, generator=g).to(bf), (1 + 0.3 * torch.randn(1024, generator=g)).to(bf)


def _norm(x, w):
    h = x.float()
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * w.float()


def inference(x, w):
    return _norm(x, w).to(f5).float()


def training(x, w):
    return _norm(x, w).to(bf).to(f5).float()


def aligned(rnd, x, w):
    return rnd("norm_out", _norm(x, w)).to(f5).float()
