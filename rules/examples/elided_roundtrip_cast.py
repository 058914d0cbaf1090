# The case tests/cases/public/28_elided_roundtrip_cast.py, shipped with the rules.
"""Explicit fp32 -> bf16 -> fp32 round trip elided by the compiler (a semantic rounding written by the user).
Addresses: https://github.com/pytorch/pytorch/issues/176565 , PRs #179572 #180575 (fixes #179561: matmul, .to(bf16).float(), x*sigmoid(x), sum), issue #181568
inference (compiled): cast dropped.   training (eager): cast executed.
Expected moved: x rounded in training only; output stays fp32, ~all elements differ."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return (torch.randn(64, 512, generator=g),)


def inference(x):
    return x * torch.sigmoid(x)


def training(x):
    y = x.to(bf).float()
    return y * torch.sigmoid(y)
