# The case tests/cases/more/215_final_softcap_bf16.py, shipped with the rules.
"""Final logit soft-cap (Gemma 2): cap * tanh(logits / cap) in bf16 op by op in the trainer, in fp32 from the same bf16 logits in the engine; log-softmax in fp32.
Expected moved: logits/cap, tanh, and the capped logits in training only."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return ((12 * torch.randn(16, 1024, generator=g)).to(bf),)


def inference(logits):
    return torch.log_softmax(torch.tanh(logits.float() / 30.0) * 30.0, -1)


def training(logits):
    x = logits / 30.0
    x = torch.tanh(x)
    x = x * 30.0
    return torch.log_softmax(x.float(), -1)
