# The case tests/cases/more/255_attention_softcap.py, shipped with the rules.
"""Attention soft-cap (Gemma 2: 50 * tanh(s / 50)) in bf16 op by op in eager attention, in fp32 in the engine's kernel, from fp32 scores.
Expected moved: scores, s/50, tanh and the capped scores in training only."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(2, 32, 64, generator=g)).to(bf), (2 * torch.randn(2, 32, 64, generator=g)).to(bf)


def inference(q, k):
    s = q.float() @ k.float().transpose(1, 2)
    return torch.softmax(50.0 * torch.tanh(s / 50.0), -1).to(bf)


def training(q, k):
    s = q @ k.transpose(1, 2)
    s = torch.tanh(s / 50.0) * 50.0
    return F.softmax(s, dim=-1, dtype=torch.float32).to(bf)
