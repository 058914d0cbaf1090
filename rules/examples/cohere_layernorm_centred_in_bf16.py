# The case tests/cases/more/236_cohere_layernorm_centred_in_bf16.py, shipped with the rules.
"""Mean-subtracting norm without bias (Cohere): the trainer centres in bf16 before it upcasts, the engine centres in fp32.
Expected moved: the mean and the centred value in training only."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return (2 + torch.randn(64, 768, generator=g)).to(bf), (1 + 0.3 * torch.randn(768, generator=g)).to(bf)


def inference(x, w):
    h = x.float()
    h = h - h.mean(-1, keepdim=True)
    return (w.float() * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5))).to(bf)


def training(x, w):
    h = (x - x.mean(-1, keepdim=True)).float()
    return (w.float() * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5))).to(bf)
