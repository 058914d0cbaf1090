# The case tests/cases/public/10_gptoss_router.py, shipped with the rules.
"""GPT-OSS router: softmax over the top-4 logits in bf16 (HF) vs fp32 weights kept until the expert combine (vLLM / Gaudi / TRT-LLM).
Addresses: https://github.com/vllm-project/vllm-gaudi/pull/970 , https://github.com/linkedin/Liger-Kernel/pull/850 (router is sensitive in bf16),
           HF GptOssTopKRouter (softmax dtype = logits dtype)
inference: topk on bf16 logits, softmax fp32, weights stay fp32, multiply expert outputs in fp32, one cast per expert term.
training : topk on bf16 logits, softmax output bf16, expert output * weight in bf16.
Expected moved: routing weights rounded in training only. Indices must be identical. Weighted term 0..1 ulp."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    T, E, K, D = 64, 32, 4, 256
    return torch.randn(T, E, generator=g).to(bf), torch.randn(T, K, D, generator=g).to(bf)


def inference(logits, expert_out):
    v, i = torch.topk(logits, 4, dim=-1)
    p = torch.softmax(v.float(), -1)
    return (expert_out.float() * p[..., None]).to(bf), i


def training(logits, expert_out):
    v, i = torch.topk(logits, 4, dim=-1)
    p = torch.softmax(v, dim=-1, dtype=v.dtype)
    return expert_out * p[..., None], i
