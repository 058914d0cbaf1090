# The case tests/cases/more/320_neg_layer_norm_fused_op.py, shipped with the rules.
"""NEGATIVE. F.layer_norm against the norm by hand with one cast."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 512, generator=g).to(bf), (1 + 0.3 * torch.randn(512, generator=g)).to(bf), torch.randn(512, generator=g).to(bf)


def inference(x, w, b):
    return F.layer_norm(x, (512,), w, b, 1e-5)


def training(x, w, b):
    h = x.float()
    u = h.mean(-1, keepdim=True)
    s = (h - u).pow(2).mean(-1, keepdim=True)
    return ((h - u) / torch.sqrt(s + 1e-5) * w.float() + b.float()).to(bf)
