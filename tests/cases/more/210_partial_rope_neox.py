"""Partial RoPE in the half-split spelling (GPT-NeoX, StableLM, Phi: a quarter of the lanes turn).
Expected moved: x*cos and rot(x)*sin of the turned lanes in training only; the other lanes pass through."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["x_cos", "rot_sin"], moved_inference_only=[], same_slices="out[..., 32:]")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    ang = torch.outer(torch.arange(48).float() + 5, 1e4 ** (-torch.arange(0, 32, 2).float() / 32))
    return torch.randn(48, 6, 128, generator=g).to(bf), ang.cos().to(bf)[:, None], ang.sin().to(bf)[:, None]


def inference(q, c, s):
    out = q.clone()
    a, b = q[..., :16].float(), q[..., 16:32].float()
    c, s = c.float(), s.float()
    return torch.cat(((a * c - b * s).to(bf), (b * c + a * s).to(bf), out[..., 32:]), -1)


def training(q, c, s):
    c, s = torch.cat((c, c), -1), torch.cat((s, s), -1)
    turn, rest = q[..., :32], q[..., 32:]
    return torch.cat((turn * c + torch.cat((-turn[..., 16:], turn[..., :16]), -1) * s, rest), -1)


def aligned(rnd, q, c, s):
    c, s = torch.cat((c, c), -1).float(), torch.cat((s, s), -1).float()
    x = q[..., :32].float()
    y = rnd("x_cos", x * c) + rnd("rot_sin", torch.cat((-x[..., 16:], x[..., :16]), -1) * s)
    return torch.cat((y.to(bf), q[..., 32:]), -1)
