"""NEGATIVE. A row chosen by a product with a one-hot matrix against indexing: one term survives, nothing is rounded."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(0, 64, (24,), generator=g), torch.randn(64, 128, generator=g).to(bf)


def inference(ids, table):
    return ((ids[:, None] == torch.arange(64)).to(bf) @ table) * 1.37


def training(ids, table):
    return table[ids] * 1.37
