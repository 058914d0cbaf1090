"""Llama-4 query norm without a weight, then a gate by position: the norm's output is stored in bf16 by the trainer, the engine fuses norm and scale.
Expected moved: the normalised query in training only."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["xhat"], moved_inference_only=[])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 4, 128, generator=g).to(bf), 0.1 * torch.log1p(torch.arange(32).float() + 40)[:, None, None] + 1


def inference(q, scale):
    x = q.float()
    return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * scale).to(bf)


def training(q, scale):
    x = q.float()
    x = (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(q)
    return (x * scale).to(q.dtype)


def aligned(rnd, q, scale):
    x = q.float()
    return (rnd("xhat", x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)) * scale).to(bf)
