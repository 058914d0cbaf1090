# The case tests/cases/public/15_attn_softmax.py, shipped with the rules.
"""Attention scores: flash/SDPA-style fp32 scores+softmax vs HF eager (bf16 QK^T, bf16 scaling, fp32 softmax, bf16 probs).
Addresses: https://github.com/huggingface/transformers/pull/37363 + issue #39067 (Qwen2.5-VL sdpa vs eager vs engine),
           https://github.com/AI-Hypercomputer/maxtext/pull/1225 , https://github.com/Dao-AILab/flash-attention/issues/703 (qk fp32, softmax fp32, P to bf16)
inference: S fp32, S*scale fp32, softmax fp32, P->bf16 (for the PV GEMM).
training : S->bf16, S*scale->bf16, softmax fp32, P->bf16.
Expected moved: S and S*scale rounded in training only. P moves by up to |S|*2^-8 relative => tens of ulp for large scores. (fp32 GEMM order may add rare tie flips.)"""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    H, T, D = 4, 64, 128
    return (2 * torch.randn(H, T, D, generator=g)).to(bf), (2 * torch.randn(H, T, D, generator=g)).to(bf), torch.triu(torch.full((T, T), float("-inf")), 1).to(bf)


def inference(q, k, mask):
    s = q.float() @ k.float().transpose(1, 2) * 128 ** -0.5 + mask.float()
    return torch.softmax(s, -1).to(bf)


def training(q, k, mask):
    s = torch.matmul(q, k.transpose(1, 2)) * 128 ** -0.5
    s = s + mask
    return torch.softmax(s, dim=-1, dtype=torch.float32).to(bf)
