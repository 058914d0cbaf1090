# The case tests/cases/more/248_attention_probs_before_pv.py, shipped with the rules.
"""P rounded to bf16 before P @ V (eager attention) against P kept in fp32 (an fp32 math path).
Expected moved: the attention probabilities in training only."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(4, 48, 64, generator=g).to(bf) for _ in range(3))


def _probs(q, k):
    return torch.softmax(q.float() @ k.float().transpose(1, 2) * 0.125, -1)


def inference(q, k, v):
    return (_probs(q, k) @ v.float()).to(bf)


def training(q, k, v):
    return torch.matmul(_probs(q, k).to(bf), v)
