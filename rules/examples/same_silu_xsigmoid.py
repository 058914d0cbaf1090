# The case tests/cases/public/110_neg_silu_xsigmoid.py, shipped with the rules.
"""NEGATIVE (with a caveat). silu(x) vs x*sigmoid(x), both inside one fp32 island, one cast after the product with up. Same rounding schedule in bf16.
fp32 spelling may differ in the last fp32 bit, which can flip a bf16 tie about once per 1e4..1e5 elements: the tool must call this 'same schedule' and,
if it compares values, attribute a flip to fp32 noise rather than to a moved cast."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 512, generator=g).to(bf), torch.randn(32, 512, generator=g).to(bf)


def inference(g, u):
    x = g.float()
    return (x * torch.sigmoid(x) * u.float()).to(bf)


def training(g, u):
    return (F.silu(g.float()) * u.float()).to(bf)
