"""inv_freq cast to bf16 with the module (a buffer caught by .to(bfloat16)); angles, cos, sin and rotation in fp32 on both sides.
Expected moved: inv_freq in training only."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["inv_freq"], moved_inference_only=[])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    inv = 1e4 ** (-torch.arange(0, 64, 2).float() / 64)
    return torch.randn(48, 4, 64, generator=g).to(bf), torch.arange(48) + 30, inv, inv.to(bf)


def _rotate(q, pos, inv):
    ang = (pos.float()[:, None] * inv)[:, None]
    c, s = ang.cos(), ang.sin()
    a, b = q.float().chunk(2, -1)
    return torch.cat((a * c - b * s, b * c + a * s), -1).to(bf)


def inference(q, pos, inv, rounded):
    return _rotate(q, pos, inv)


def training(q, pos, inv, rounded):
    return _rotate(q, pos, rounded.float())


def aligned(rnd, q, pos, inv, rounded):
    return _rotate(q, pos, rnd("inv_freq", inv))
