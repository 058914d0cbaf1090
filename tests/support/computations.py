"""Small functions that are one computation, or nearly (see tests/unit/test_one_computation.py)."""

import torch
import torch.nn.functional as F

BF16 = torch.bfloat16


def inputs(seed):
    made = torch.Generator().manual_seed(seed)
    x, y, w = (torch.randn(s, generator=made).to(BF16) for s in ((16, 128), (16, 128), (128,)))
    return x, y, w, torch.rand(16, 128, generator=made) > 0.3


def identity(x, y, w, m):
    return x


def product(x, y, w, m):
    return x * w


def half(x, y, w, m):
    return x * w * 0.5


def quarter(x, y, w, m):
    return x * w * 0.25


def rolled(x, y, w, m):
    return torch.roll(x * w, 1, 1)


def flipped(x, y, w, m):
    return torch.flip(x * w, (0,))


def transposed(x, y, w, m):
    return (x * w).t()


def negated(x, y, w, m):
    return -(x * w)


def floored(x, y, w, m):
    return torch.floor(x * w)


def shifted(x, y, w, m):
    return x * w + 1e-3


def dropped(x, y, w, m):
    return F.dropout(x * w, 0.1, True)


def masked(x, y, w, m):
    return torch.where(m, x * w, 0)


def cut(x, y, w, m):
    return (x * w)[:8]


def relu(x, y, w, m):
    return torch.relu(x)


def _norm(x, w, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * w.float()).to(BF16)


def norm(x, y, w, m):
    return _norm(x, w, 1e-6)


def norm_eps(x, y, w, m):
    return _norm(x, w, 1e-3)


def norm_eps_near(x, y, w, m):
    return _norm(x, w, 1e-5)


def norm_blocks(x, y, w, m):
    """`norm`, summed in another order."""
    wide = x.float()
    square = wide.pow(2).view(16, 8, 16).sum(1).flip(-1).sum(-1, keepdim=True) * (1 / 128)
    return (w.float() * wide * torch.rsqrt(square + 1e-6)).to(BF16)


def batched(x, y, w, m):
    return (x * w)[None]


def wide(x, y, w, m):
    return x.float() * w.float() + y.float()


def wide_fma(x, y, w, m):
    return torch.addcmul(y.float(), w.float(), x.float())


def both(x, y, w, m):
    return x * w, x + y


def both_exchanged(x, y, w, m):
    return x + y, x * w


def fused(x, y, w, m):
    return (x.float() * w.float() + y.float()).to(BF16)


def eager(x, y, w, m):
    return x * w + y


def eager_rolled(x, y, w, m):
    return torch.roll(x * w + y, 1, 1)


def master(x, y, w, m):
    """`product` with FP32 copies of BF16 numbers."""
    return (x.float() * w.float()).to(BF16)


def dead_dropout(x, y, w, m):
    return F.dropout(x * w, 0.0, True)


def additive_mask(x, y, w, m):
    return torch.softmax((x.float() + torch.where(m, 0.0, float("-inf"))), -1).to(BF16)


def masked_fill(x, y, w, m):
    return torch.softmax(x.float().masked_fill(~m, torch.finfo(torch.float32).min), -1).to(BF16)


def mostly_masked(x, y, w, m):
    """Most elements are the mask's constant, whose size must not hide what the others do."""
    return (x.float() * w.float()).masked_fill((y > -1).clone(), -1e9)


def mostly_masked_half(x, y, w, m):
    return (x.float() * w.float() * 0.5).masked_fill((y > -1).clone(), -1e9)


@torch.library.custom_op("graphdiff_test::attend", mutates_args=())
def attend(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """An op that cannot be read."""
    return (torch.softmax(q.float() @ k.float().T / 8, -1) @ k.float()).to(BF16)


def _unit(x):
    return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(BF16)


def opaque(x, y, w, m):
    return attend(_unit(x), _unit(y))


def spelled(x, y, w, m):
    q, k = _unit(x).float(), _unit(y).float()
    return (torch.softmax(q @ k.T * 0.125, -1) @ k).to(BF16)


def spelled_otherwise(x, y, w, m):
    q, k = _unit(x).float(), _unit(y).float()
    return (torch.softmax(q @ k.T * 0.25, -1) @ k).to(BF16)
