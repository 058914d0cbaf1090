"""NEGATIVE. Values of top-k and of a sort, taken before or after the rounding (the values only: ties may order indices otherwise)."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 64, generator=g).to(bf), torch.randn(64, 64, generator=g).to(bf)


def inference(x, y):
    s = x.float() + y.float()
    return torch.topk(s, 4, dim=-1)[0].to(bf), torch.sort(s, dim=-1)[0].to(bf)


def training(x, y):
    s = x + y
    return torch.topk(s, 4, dim=-1)[0], torch.sort(s, dim=-1)[0]
