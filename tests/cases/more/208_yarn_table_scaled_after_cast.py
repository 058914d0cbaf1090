"""YaRN: the attention factor multiplies cos and sin. The engine scales in fp32 and stores a bf16 table; the trainer casts first and scales in bf16.
Expected moved: the unscaled cos and sin in training only (the scaled table is rounded on both sides)."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["cos", "sin"], moved_inference_only=[])
FACTOR = 1.2079


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    ang = torch.outer(torch.arange(64).float() + 60, 1e5 ** (-torch.arange(0, 64, 2).float() / 64))
    return torch.randn(1, 4, 64, 64, generator=g).to(bf), torch.cat((ang, ang), -1)


def _rotate(q, c, s):
    x = q.float()
    return (x * c.float() + torch.cat((-x[..., 32:], x[..., :32]), -1) * s.float()).to(bf)


def inference(q, ang):
    return _rotate(q, (ang.cos() * FACTOR).to(bf), (ang.sin() * FACTOR).to(bf))


def training(q, ang):
    return _rotate(q, ang.cos().to(bf) * FACTOR, ang.sin().to(bf) * FACTOR)


def aligned(rnd, q, ang):
    return _rotate(q, (rnd("cos", ang.cos()) * FACTOR).to(bf), (rnd("sin", ang.sin()) * FACTOR).to(bf))
