"""NEGATIVE. addcmul against a product and a sum inside one fp32 island: one rounding. (FP32 contraction may differ in its last bit.)"""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same", noise="FP32 contraction")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(32, 256, generator=g).to(bf) for _ in range(3))


def inference(r, f, gamma):
    return torch.addcmul(r, f, gamma)


def training(r, f, gamma):
    return (r.float() + f.float() * gamma.float()).to(bf)
