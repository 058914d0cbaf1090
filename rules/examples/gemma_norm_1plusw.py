# The case tests/cases/public/06_gemma_norm_1plusw.py, shipped with the rules.
"""Gemma RMSNorm with (1 + w): fp32 offset vs bf16 offset.
Addresses: https://github.com/linkedin/Liger-Kernel/pull/1462 (CuTe DSL adds the offset to the bf16 weight; bf16 0.00390625+1 -> 1.0),
           https://github.com/vllm-project/vllm/pull/53203 , https://github.com/vllm-project/vllm/pull/29810 (w=15.8125 -> 16.8125),
           https://github.com/huggingface/transformers/pull/29402
inference: xhat * (1 + fp32(w)) in fp32, one cast (HF Gemma and vLLM GemmaRMSNorm agree on this).
training (a patched kernel): (1+w) computed and ROUNDED in bf16, then fp32 multiply, one cast.
Expected moved: 1+w rounded in training only (a weight-only value: shared by all tokens, so the error is coherent per channel). 0..1 ulp, rarely 2."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 2304, generator=g).to(bf), (0.3 * torch.randn(2304, generator=g)).to(bf)


def _xhat(x):
    h = x.float()
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)


def inference(x, w):
    return (_xhat(x) * (1.0 + w.float())).to(bf)


def training(x, w):
    return (_xhat(x) * (1.0 + w).float()).to(bf)
