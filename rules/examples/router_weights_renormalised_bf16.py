# The case tests/cases/more/221_router_weights_renormalised_bf16.py, shipped with the rules.
"""Mixtral-like router: softmax fp32, top-2, renormalise. The trainer casts the chosen weights to bf16 before the division, the engine after.
Expected moved: chosen weights and their sum in training only (the quotient is rounded on both)."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return ((2 * torch.randn(512, 16, generator=g)).to(bf),)


def inference(logits):
    w, i = torch.topk(torch.softmax(logits.float(), -1), 4, dim=-1)
    return (w / w.sum(-1, keepdim=True)).to(bf), i


def training(logits):
    w, i = torch.topk(F.softmax(logits, dim=-1, dtype=torch.float), 4, dim=-1)
    w = w.to(logits.dtype)
    return w / w.sum(dim=-1, keepdim=True), i
