"""NEGATIVE. Lossless trips (bf16 -> fp32 -> bf16, bf16 -> fp64 -> bf16) and a cast of what is already rounded, around the same two roundings."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(32, 256, generator=g).to(bf) for _ in range(3))


def inference(x, y, z):
    a = (x.double().to(bf) * y.float().to(bf)).to(bf).float().to(bf)
    return (a.to(torch.float64).to(torch.float32) + z.float()).to(bf)


def training(x, y, z):
    return x * y + z
