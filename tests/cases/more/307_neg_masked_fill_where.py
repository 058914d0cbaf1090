"""NEGATIVE. Masked positions set to -inf or 0 before or after the rounding."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(48, 48, generator=g).to(bf), torch.randn(48, 48, generator=g).to(bf)


def inference(x, y):
    s = x.float() * y.float()
    keep = torch.ones(48, 48, dtype=torch.bool).tril()
    return s.masked_fill(~keep, float("-inf")).to(bf), torch.where(keep, s, 0.0).to(bf)


def training(x, y):
    s = x * y
    keep = torch.arange(48)[:, None] >= torch.arange(48)[None]
    return torch.where(keep, s, float("-inf")), s.masked_fill(~keep, 0.0)
