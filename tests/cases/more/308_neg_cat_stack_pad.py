"""NEGATIVE. Concatenation, stacking and zero padding before or after the rounding."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
EXPECT = dict(verdict="same")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(32, 64, generator=g).to(bf) for _ in range(3))


def inference(x, y, z):
    a, b = x.float() + y.float(), y.float() * z.float()
    return F.pad(torch.cat((a, b), -1), (0, 8)).to(bf), torch.stack((a, b), 1).to(bf)


def training(x, y, z):
    a, b = x + y, y * z
    return torch.cat((a, b, torch.zeros(32, 8, dtype=bf)), -1), torch.cat((a[:, None], b[:, None]), 1)
