# The case tests/cases/more/222_routed_scaling_factor_bf16.py, shipped with the rules.
"""Routed scaling factor (2.827 in some DeepSeek-like models) read from a bf16 tensor by the engine, a python float in the trainer; weights stay fp32.
Expected moved: the constant in inference only."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return (torch.randn(64, 32, generator=g).to(bf), torch.tensor(2.827).to(bf))


def _weights(logits):
    s = logits.float().sigmoid()
    w = torch.topk(s, 6, dim=-1)[0]
    return w / w.sum(-1, keepdim=True)


def inference(logits, factor):
    return _weights(logits) * factor.float()


def training(logits, factor):
    return _weights(logits) * 2.827
