"""Rotation in fp32 on both sides, but the trainer keeps its table as bf16 buffers (a module-wide .to(bfloat16)) while the engine computes it in fp32.
Expected moved: cos and sin in training only."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["cos_table", "sin_table"], moved_inference_only=[])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    ang = torch.outer(torch.arange(48).float() + 200, 1e4 ** (-torch.arange(0, 64, 2).float() / 64))
    return torch.randn(48, 4, 64, generator=g).to(bf), ang, ang.cos().to(bf), ang.sin().to(bf)


def _rotate(q, c, s):
    a, b = q.float().chunk(2, -1)
    return torch.cat((a * c - b * s, b * c + a * s), -1).to(bf)


def inference(q, ang, cos, sin):
    return _rotate(q, ang.cos()[:, None], ang.sin()[:, None])


def training(q, ang, cos, sin):
    c, s = torch.cat((cos, cos), -1).float()[:, None], torch.cat((sin, sin), -1).float()[:, None]
    x = q.float()
    return (x * c + torch.cat((-x[..., 32:], x[..., :32]), -1) * s).to(bf)


def aligned(rnd, q, ang, cos, sin):
    return _rotate(q, rnd("cos_table", ang.cos())[:, None], rnd("sin_table", ang.sin())[:, None])
