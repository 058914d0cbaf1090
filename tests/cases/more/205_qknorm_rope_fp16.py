"""Per-head q norm and rotation in FP16, the engine fused in fp32.
Expected moved: xhat, xhat*w, x*cos, rot(x)*sin, rounded to float16, in training only."""
import torch
h16 = torch.float16
EXPECT = dict(verdict="moved", moved_training_only=["xhat", "w_xhat", "x_cos", "rot_sin"], moved_inference_only=[], dtype="float16")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    ang = torch.outer(torch.arange(32).float() + 3, 1e4 ** (-torch.arange(0, 128, 2).float() / 128))
    ang = torch.cat((ang, ang), -1)
    return torch.randn(1, 4, 32, 128, generator=g).to(h16), (1 + 0.2 * torch.randn(128, generator=g)).to(h16), ang.cos().to(h16), ang.sin().to(h16)


def _half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def _xhat(x):
    h = x.float()
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)


def inference(q, w, cos, sin):
    x = _xhat(q) * w.float()
    return (x * cos.float() + _half(x) * sin.float()).to(h16)


def training(q, w, cos, sin):
    x = w * _xhat(q).to(h16)
    return x * cos + _half(x) * sin


def aligned(rnd, q, w, cos, sin):
    x = rnd("w_xhat", rnd("xhat", _xhat(q), h16) * w.float(), h16)
    return (rnd("x_cos", x * cos.float(), h16) + rnd("rot_sin", _half(x) * sin.float(), h16)).to(h16)
