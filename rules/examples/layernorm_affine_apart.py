# The case tests/cases/more/235_layernorm_affine_apart.py, shipped with the rules.
"""LayerNorm whose affine part is applied apart in bf16 by the trainer (normalise, * w, + b), in fp32 inside the engine's kernel.
Expected moved: xhat and xhat*w in training only."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return (1 + torch.randn(64, 768, generator=g)).to(bf), (1 + 0.3 * torch.randn(768, generator=g)).to(bf), torch.randn(768, generator=g).to(bf)


def _xhat(x):
    h = x.float()
    h = h - h.mean(-1, keepdim=True)
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5)


def inference(x, w, b):
    return (_xhat(x) * w.float() + b.float()).to(bf)


def training(x, w, b):
    return _xhat(x).to(bf) * w + b
