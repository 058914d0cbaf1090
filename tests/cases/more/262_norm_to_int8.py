"""RMSNorm then static INT8 quantisation: the fused kernel rounds to integers from fp32, eager code from the bf16 norm.
Expected moved: the norm's output in training only; the rounding to integers is shared."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["norm_out"], moved_inference_only=[], out_dtype="int8 as float32")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 512, generator=g).to(bf), (1 + 0.3 * torch.randn(512, generator=g)).to(bf)


def _norm(x, w):
    h = x.float()
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * w.float()


def inference(x, w):
    return torch.round(_norm(x, w) / 0.031).clamp(-128, 127).to(torch.int8).float()


def training(x, w):
    return torch.round(_norm(x, w).to(bf).float() / 0.031).clamp(-128, 127).to(torch.int8).float()


def aligned(rnd, x, w):
    return torch.round(rnd("norm_out", _norm(x, w)) / 0.031).clamp(-128, 127).to(torch.int8).float()
