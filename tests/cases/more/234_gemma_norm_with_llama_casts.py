"""Gemma norm run through a llama-style kernel: xhat rounded, 1+w rounded, product rounded, against one cast at the end.
Expected moved: xhat and 1+w in training only."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["xhat", "one_plus_weight"], moved_inference_only=[])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 640, generator=g).to(bf), (0.3 * torch.randn(640, generator=g)).to(bf)


def _xhat(x):
    h = x.float()
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)


def inference(x, w):
    return (_xhat(x) * (1.0 + w.float())).to(bf)


def training(x, w):
    return _xhat(x).to(bf) * (1 + w)


def aligned(rnd, x, w):
    return (rnd("xhat", _xhat(x)) * rnd("one_plus_weight", 1.0 + w.float())).to(bf)
