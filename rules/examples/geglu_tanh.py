# The case tests/cases/public/13_geglu_tanh.py, shipped with the rules.
"""Gemma GeGLU (tanh-GELU gate product).
Addresses: https://github.com/linkedin/Liger-Kernel/pull/783 , https://github.com/EricLBuehler/mistral.rs/pull/1867 (Gemma 3 diverged), https://github.com/vllm-project/vllm/pull/3337
inference: fp32 gelu_tanh(g)*u, one cast.   training: gelu_tanh(g)->bf16, *u->bf16.
Expected moved: gelu(g) rounded in training only. <=1 ulp."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 2048, generator=g).to(bf), torch.randn(32, 2048, generator=g).to(bf)


def inference(g, u):
    return (F.gelu(g.float(), approximate="tanh") * u.float()).to(bf)


def training(g, u):
    return F.gelu(g, approximate="tanh") * u
