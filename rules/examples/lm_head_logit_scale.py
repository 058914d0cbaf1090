# The case tests/cases/more/217_lm_head_logit_scale.py, shipped with the rules.
"""Head with a logit scale (Granite, Cohere, MiniCPM): hidden @ W then * scale. The engine keeps an fp32 head; the trainer rounds logits and scaled logits.
Expected moved: logits and scaled logits in training only."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(16, 256, generator=g).to(bf), (0.5 * torch.randn(1024, 256, generator=g)).to(bf)


def inference(h, w):
    return torch.log_softmax(F.linear(h.float(), w.float()) * 0.83, -1)


def training(h, w):
    return torch.log_softmax((F.linear(h, w) * 0.83).float(), -1)
