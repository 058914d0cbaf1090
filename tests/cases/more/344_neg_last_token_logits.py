"""NEGATIVE. Logits of the last token: rows chosen before the head or after it."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
EXPECT = dict(verdict="same", noise="GEMM order")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(4, 12, 128, generator=g).to(bf), (0.2 * torch.randn(256, 128, generator=g)).to(bf)


def inference(h, w):
    return F.linear(h[:, -1], w).float()


def training(h, w):
    return F.linear(h, w)[:, -1].float()
