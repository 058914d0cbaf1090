"""Sums of products that are no mixture of experts: a loss, dot products with a vector and between rows, a scaled sum, a softmax of
weighted numbers, a sum of normalised rows. The trainer rounds each product.
Expected moved: the products, in training only, by no name of experts."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(12, 64, generator=g).to(bf), torch.randn(12, 64, generator=g).to(bf), torch.randn(64, generator=g).to(bf)


def sums(x, y, w, rounded):
    norm = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
    return (
        rounded((x - y) * (x - y)).float().mean(),
        rounded(x * w).float().sum(-1),
        rounded(y * w).float().sum(0),
        rounded(x * y).float().sum(-1),
        rounded(x * 1.1).float().sum(0),
        torch.softmax(rounded(y * w * 1.3).float(), -1),
        rounded(norm).float().sum(0),
    )


def inference(x, y, w):
    return tuple(t.to(bf) for t in sums(x.float(), y.float(), w.float(), lambda t: t))


def training(x, y, w):
    return tuple(t.to(bf) for t in sums(x.float(), y.float(), w.float(), lambda t: t.to(bf).float()))
