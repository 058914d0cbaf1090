"""MoE combine, four experts per token weighted and added by one sum over their axis: the trainer rounds the weighted outputs to bf16,
the engine keeps them in fp32. Expected moved: the weighted term, in training only."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(16, 4, 64, generator=g).to(bf), torch.softmax(torch.randn(16, 4, generator=g), -1).to(bf)


def inference(y, w):
    return (y.float() * w.float()[..., None]).sum(1).to(bf)


def training(y, w):
    return (y * w[..., None]).sum(1)
