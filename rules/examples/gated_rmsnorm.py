# The case tests/cases/public/20_gated_rmsnorm.py, shipped with the rules.
"""Gated RMSNorm (Qwen3-Next GatedDeltaNet output norm), norm before gate.
Addresses: https://github.com/ggml-org/llama.cpp/pull/16095 (quotes the HF schedule), https://github.com/vllm-project/vllm/pull/26207 (fused fp32 kernel),
           https://github.com/mlc-ai/pith-train/pull/64 (review: cast once at the end)
inference: xhat*w*silu(z) in fp32, one cast.
training (HF): xhat->bf16, w*xhat->bf16, then fp32 * silu(fp32 z), cast.
Expected moved: xhat and w*xhat rounded in training only; silu(z) fp32 on both. 0..2 ulp."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(512, 128, generator=g).to(bf), torch.randn(512, 128, generator=g).to(bf), (1 + 0.2 * torch.randn(128, generator=g)).to(bf)


def inference(x, z, w):
    h = x.float()
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
    return (h * w.float() * F.silu(z.float())).to(bf)


def training(x, z, w):
    h = x.float()
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
    return ((w * h.to(bf)) * F.silu(z.float())).to(bf)
