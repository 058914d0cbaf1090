"""RoPE whose table is formed in the graph from positions: the trainer casts cos and sin to the activations' dtype and rotates in bf16, the engine keeps both in fp32.
Expected moved: cos, sin, x*cos, rot(x)*sin in training only."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["cos", "sin", "x_cos", "rot_sin"], moved_inference_only=[])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(1, 4, 48, 64, generator=g).to(bf), torch.arange(48)[None] + 17, 1e4 ** (-torch.arange(0, 64, 2).float() / 64)


def _half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def inference(q, pos, inv):
    ang = pos.float()[:, :, None] * inv
    c, s = ang.cos()[:, None], ang.sin()[:, None]
    a, b = q.float().chunk(2, -1)
    return torch.cat((a * c - b * s, b * c + a * s), -1).to(bf)


def training(q, pos, inv):
    ang = (inv[None, :, None] @ pos[:, None, :].float()).transpose(1, 2)
    emb = torch.cat((ang, ang), -1)
    cos, sin = emb.cos().to(q.dtype).unsqueeze(1), emb.sin().to(q.dtype).unsqueeze(1)
    return q * cos + _half(q) * sin


def aligned(rnd, q, pos, inv):
    ang = pos.float()[:, :, None] * inv
    emb = torch.cat((ang, ang), -1)[:, None]
    c, s = rnd("cos", emb.cos()), rnd("sin", emb.sin())
    return (rnd("x_cos", q.float() * c) + rnd("rot_sin", _half(q.float()) * s)).to(bf)
