# The case tests/cases/more/316_neg_linear_addmm_baddbmm.py, shipped with the rules.
"""NEGATIVE. A linear with bias by F.linear, addmm or baddbmm: the bias enters before the one rounding."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 128, generator=g).to(bf), (0.1 * torch.randn(96, 128, generator=g)).to(bf), torch.randn(96, generator=g).to(bf)


def inference(x, w, b):
    return torch.addmm(b, x, w.t()), torch.baddbmm(b[None, None].expand(1, 32, 96), x[None], w.t()[None])[0]


def training(x, w, b):
    y = F.linear(x, w, b)
    return y, (x.float() @ w.float().t() + b.float()).to(bf)
