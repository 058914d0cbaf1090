"""YaRN's attention factor kept in a bf16 buffer by the trainer, a float in the engine; the scaled table is rounded on both sides.
Expected moved: the factor in training only."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["attention_factor"], moved_inference_only=[])
FACTOR = 1.2079


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    ang = torch.outer(torch.arange(64).float() + 60, 1e5 ** (-torch.arange(0, 64, 2).float() / 64))
    return torch.randn(1, 4, 64, 64, generator=g).to(bf), torch.cat((ang, ang), -1), torch.tensor(FACTOR).to(bf)


def _rotate(q, c, s):
    x = q.float()
    return (x * c.float() + torch.cat((-x[..., 32:], x[..., :32]), -1) * s.float()).to(bf)


def inference(q, ang, factor):
    return _rotate(q, (ang.cos() * FACTOR).to(bf), (ang.sin() * FACTOR).to(bf))


def training(q, ang, factor):
    f = factor.float()
    return _rotate(q, (ang.cos() * f).to(bf), (ang.sin() * f).to(bf))


def aligned(rnd, q, ang, factor):
    f = rnd("attention_factor", torch.tensor(FACTOR))
    return _rotate(q, (ang.cos() * f).to(bf), (ang.sin() * f).to(bf))
