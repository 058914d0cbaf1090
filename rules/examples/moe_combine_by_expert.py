"""MoE combine expert by expert, two experts per token, router weights in FP32 (Mixtral): transformers' eager experts cast each weighted output and add it into
a bf16 buffer, its grouped matmuls (the default since 5.0) sum over a token's experts in fp32.
Expected moved: the weighted terms of each expert in training only (two terms a token: the sum is the output, rounded on both)."""
import torch
bf = torch.bfloat16
CHOSEN = torch.tensor([[0, 1], [1, 2], [2, 0], [0, 2], [1, 0], [2, 1], [0, 1], [1, 2]])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    w = torch.randn(3, 64, 64, generator=g).mul(0.1).to(bf)
    return torch.randn(8, 64, generator=g).to(bf), w, torch.rand(8, 2, generator=g)


def inference(x, w, share):
    flat, order = torch.sort(CHOSEN.reshape(-1), stable=True)
    y = torch.cat([x[order[flat == e] // 2] @ w[e] for e in range(3)])
    weighted = y * share.reshape(-1)[order][:, None]
    return weighted[torch.argsort(order)].view(8, 2, 64).sum(1).to(bf)


def training(x, w, share):
    out = torch.zeros_like(x)
    for e in range(3):
        token, place = torch.where(CHOSEN == e)
        y = (x[token] @ w[e]) * share[token, place, None]
        out.index_add_(0, token, y.to(bf))
    return out
