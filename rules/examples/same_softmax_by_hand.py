# The case tests/cases/more/318_neg_softmax_by_hand.py, shipped with the rules.
"""NEGATIVE. Softmax spelled by hand in fp32 against torch.softmax, probabilities rounded once."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return ((3 * torch.randn(64, 128, generator=g)).to(bf),)


def inference(x):
    x = x.float()
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return (e / e.sum(-1, keepdim=True)).to(bf)


def training(x):
    return torch.softmax(x, -1, dtype=torch.float32).to(x.dtype)
