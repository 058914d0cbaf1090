"""Interleaved (GPT-J) RoPE, mirrored: the engine's kernel works in bf16, the trainer multiplies complex numbers in fp32. Both read one bf16 table.
Expected moved: the four products in inference only: both sides compute them in parts, so neither forms x*cos as one value."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=[], moved_inference_only=["a_cos", "b_sin", "b_cos", "a_sin"])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    ang = torch.outer(torch.arange(48).float() + 30, 1e4 ** (-torch.arange(0, 64, 2).float() / 64))
    return torch.randn(48, 4, 64, generator=g).to(bf), ang.cos().to(bf)[:, None], ang.sin().to(bf)[:, None]


def inference(q, c, s):
    a, b = q[..., ::2], q[..., 1::2]
    return torch.stack((a * c - b * s, b * c + a * s), -1).flatten(-2)


def training(q, c, s):
    z = torch.view_as_complex(q.float().unflatten(-1, (32, 2)))
    return torch.view_as_real(z * torch.complex(c.float(), s.float())).flatten(-2).to(bf)


def aligned(rnd, q, c, s):
    c, s = c.float(), s.float()
    a, b = q[..., ::2].float(), q[..., 1::2].float()
    re = rnd("a_cos", a * c) - rnd("b_sin", b * s)
    im = rnd("b_cos", b * c) + rnd("a_sin", a * s)
    return torch.stack((re, im), -1).flatten(-2).to(bf)
