"""NEGATIVE. The same sum written out term by term and as a reduction, in FP32 on both sides: other FP32 order, same roundings."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same", noise="FP32 reduction order")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(16, 6, 64, generator=g).to(bf), torch.softmax(torch.randn(16, 6, generator=g), -1).to(bf)


def inference(y, w):
    t = [y[:, i].float() * w[:, i, None].float() for i in range(6)]
    return ((((t[0] + t[1]) + t[2]) + (t[3] + t[4])) + t[5]).to(bf)


def training(y, w):
    return (y.float() * w[..., None].float()).sum(1).to(bf)
