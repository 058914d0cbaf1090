# The case tests/cases/public/24_lm_head_logprob.py, shipped with the rules.
"""lm_head precision and chosen-token log-prob.
Addresses: https://github.com/huggingface/trl/pull/4303 (ScaleRL/MiniMax fp32 head), https://github.com/PrimeIntellect-ai/prime-rl/pull/2438 ,
           https://github.com/vllm-project/vllm/pull/48390 , https://github.com/NVIDIA-NeMo/RL/pull/3936 (one-sided fp32 head is WORSE than none), https://github.com/pytorch/torchtitan/pull/3667
inference: fp32 hidden @ fp32(W)^T -> fp32 logits -> log_softmax.   training: bf16 logits, upcast, log_softmax.
Expected moved: logits rounded in training only. log-prob error up to ~ulp(logit)/2 = 0.03..0.06 nats for |logit| 8..32. Output fp32."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 256, generator=g).to(bf), (0.5 * torch.randn(2048, 256, generator=g)).to(bf)


def inference(h, w):
    return torch.log_softmax(h.float() @ w.float().t(), -1)


def training(h, w):
    return torch.log_softmax(F.linear(h, w).float(), -1)
