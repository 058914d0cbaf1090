# The case tests/cases/more/328_neg_folded_weight_fp32.py, shipped with the rules.
"""NEGATIVE. Gemma's 1+w folded at load time into an FP32 buffer against added in fp32 at every call: nothing is rounded."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    w = (0.3 * torch.randn(320, generator=g)).to(bf)
    return torch.randn(64, 320, generator=g).to(bf), w, 1 + w.float()


def _xhat(x):
    h = x.float()
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)


def inference(x, w, folded):
    return (_xhat(x) * folded).to(bf)


def training(x, w, folded):
    return (_xhat(x) * (w.float() + 1)).to(bf)
