"""NEGATIVE. Multiplying or dividing by powers of two before or after the rounding, * 0.5 against / 2."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 256, generator=g).to(bf), torch.randn(32, 256, generator=g).to(bf)


def inference(x, y):
    return ((x.float() + y.float()) * 0.5).to(bf), (x.float() * y.float() / 16).to(bf)


def training(x, y):
    return (x + y) / 2, x * y * 0.0625
