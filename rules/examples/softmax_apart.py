"""A softmax whose result is stored in bf16 before a smoothed logarithm; the fused kernel keeps it in fp32.
Expected moved: the softmax's output in training only."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return ((2 * torch.randn(48, 96, generator=g)).to(bf),)


def inference(x):
    return torch.log(torch.softmax(x.float(), -1) + 1e-3).to(bf)


def training(x):
    return torch.log(torch.softmax(x, -1).float() + 1e-3).to(bf)
