"""NEGATIVE. Grouped-query attention: keys repeated to the query heads against a broadcast group axis; scores rounded once on both."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same", noise="GEMM order")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(1, 8, 16, 64, generator=g).to(bf), torch.randn(1, 2, 16, 64, generator=g).to(bf)


def inference(q, k):
    return (q.view(1, 2, 4, 16, 64) @ k[:, :, None].transpose(-1, -2)).view(1, 8, 16, 16)


def training(q, k):
    return torch.matmul(q, k.repeat_interleave(4, dim=1).transpose(2, 3))
