# The case tests/cases/more/233_gemma_weight_folded_at_load.py, shipped with the rules.
"""Gemma (1 + w) folded into a bf16 weight when the engine loads the checkpoint; the trainer adds 1 in fp32 at every call.
Expected moved: 1+w in inference only."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    w = (0.3 * torch.randn(640, generator=g)).to(bf)
    return torch.randn(64, 640, generator=g).to(bf), w, 1 + w


def _xhat(x):
    h = x.float()
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)


def inference(x, w, folded):
    return (_xhat(x) * folded.float()).to(bf)


def training(x, w, folded):
    return (_xhat(x) * (1.0 + w.float())).to(bf)
