"""NEGATIVE. A row chosen by a product with a one-hot matrix against indexing: one term survives, nothing is rounded."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
EXPECT = dict(verdict="same")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(0, 64, (24,), generator=g), torch.randn(64, 128, generator=g).to(bf), torch.randn(64, 128, generator=g).to(bf)


def inference(ids, table, gain):
    return (F.one_hot(ids, 64).to(bf) @ table) * 1.37


def training(ids, table, gain):
    return table[ids] * 1.37
