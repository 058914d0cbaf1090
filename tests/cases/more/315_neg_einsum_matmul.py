"""NEGATIVE. Scores by einsum, by matmul of a transpose, by bmm: one product each, the same cast."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same", noise="GEMM order")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(2, 24, 4, 64, generator=g).to(bf), torch.randn(2, 24, 4, 64, generator=g).to(bf)


def inference(q, k):
    return torch.einsum("bqhd,bkhd->bhqk", q, k) * 0.125


def training(q, k):
    q, k = q.transpose(1, 2), k.transpose(1, 2)
    return torch.bmm(q.reshape(8, 24, 64), k.reshape(8, 24, 64).transpose(1, 2)).view(2, 4, 24, 24) / 8
