# The case tests/cases/more/253_layer_scale_fp16.py, shipped with the rules.
"""LayerScale (vision towers): residual + gamma * f(x) in FP16; eager rounds the product, the compiled block does not.
Expected moved: gamma*f, rounded to float16, in training only."""
import torch
h16 = torch.float16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 512, generator=g).to(h16), torch.randn(64, 512, generator=g).to(h16), torch.rand(512, generator=g).to(h16)


def inference(r, f, gamma):
    return (f.float() * gamma.float() + r.float()).to(h16)


def training(r, f, gamma):
    return r + gamma * f
