# The case tests/cases/public/05_rmsnorm_weight_cast.py, shipped with the rules.
"""Llama/Qwen RMSNorm: weight multiply after vs before the bf16 cast.
Addresses: https://github.com/vllm-project/vllm/issues/42325 + PR #42379 (CUDA kernel went to fp32 weight multiply in v0.20.0),
           https://github.com/linkedin/Liger-Kernel/pull/92 , https://github.com/NVIDIA/TransformerEngine/issues/1132 ,
           https://github.com/huggingface/transformers/issues/33133 , https://github.com/vllm-project/vllm-xpu-kernels/pull/536
inference: fp32 x*rstd*w, one cast.   training (HF Llama/Qwen): xhat->bf16, w*xhat->bf16.
Expected moved: xhat rounded in training only. 0..1 ulp. (If w==1 everywhere the outputs are bitwise equal: use a non-trivial w.)"""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 2048, generator=g).to(bf), (0.5 + torch.rand(2048, generator=g)).to(bf)


def inference(x, w):
    h = x.float()
    return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * w.float()).to(bf)


def training(x, w):
    h = x.to(torch.float32)
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
    return w * h.to(x.dtype)
