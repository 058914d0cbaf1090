# The case tests/cases/more/332_neg_temperature_pow2_and_constant.py, shipped with the rules.
"""NEGATIVE. Temperature 0.5 in bf16 before the upcast or in fp32 after, and a constant bf16 can hold (0.75) as a python float or as a bf16 tensor."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return (4 * torch.randn(16, 256, generator=g)).to(bf), torch.randn(16, 256, generator=g).to(bf)


def inference(logits, x):
    return torch.log_softmax(logits.float() / 0.5, -1), x * torch.tensor(0.75, dtype=bf)


def training(logits, x):
    return torch.log_softmax((logits * 2).float(), -1), x * 0.75
