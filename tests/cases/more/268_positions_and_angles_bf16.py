"""Positions cast to bf16 before they meet inv_freq (autocast, or arange in the model's dtype): above 256 they are no longer whole numbers apart.
Expected moved: the position and the angle in training only; the table is rounded to bf16 on both sides."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["position", "angle"], moved_inference_only=[])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(48, 4, 64, generator=g).to(bf), torch.arange(48) + 401, (1e4 ** (-torch.arange(0, 64, 2).float() / 64)).to(bf)


def _rotate(q, c, s):
    c, s = c.float()[:, None], s.float()[:, None]
    a, b = q.float().chunk(2, -1)
    return torch.cat((a * c - b * s, b * c + a * s), -1).to(bf)


def inference(q, pos, inv):
    ang = pos.float()[:, None] * inv.float()
    return _rotate(q, ang.cos().to(bf), ang.sin().to(bf))


def training(q, pos, inv):
    ang = pos.to(bf)[:, None] * inv
    return _rotate(q, ang.cos(), ang.sin())


def aligned(rnd, q, pos, inv):
    ang = rnd("angle", rnd("position", pos.float())[:, None] * inv.float())
    return _rotate(q, ang.cos().to(bf), ang.sin().to(bf))
