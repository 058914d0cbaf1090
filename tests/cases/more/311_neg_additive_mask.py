"""NEGATIVE. A 0/-inf mask added to rounded scores in bf16 rounds nothing new; added in fp32 before the one rounding is the same."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
EXPECT = dict(verdict="same")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(2, 32, 64, generator=g).to(bf), torch.randn(2, 32, 64, generator=g).to(bf), torch.triu(torch.full((32, 32), float("-inf")), 1).to(bf)


def inference(q, k, mask):
    return torch.softmax((q.float() * k.float() + F.pad(mask, (0, 32)).float()).to(bf).float(), -1)


def training(q, k, mask):
    return torch.softmax((q * k) + F.pad(mask, (0, 32)), -1, dtype=torch.float32)
