# The case tests/cases/public/18_lora_add.py, shipped with the rules.
"""LoRA addition on a linear layer.
Addresses: https://github.com/vllm-project/vllm/pull/38686 (bf16 vs fp32 shrink buffer in fused MoE LoRA), https://github.com/vllm-project/vllm/issues/33704 ,
           https://github.com/NovaSky-AI/SkyRL/issues/1776
inference (punica): base bf16 linear output; shrink x@A*scale kept in an fp32 buffer; expand @B fp32, added to base in fp32, one cast.
training  (PEFT)  : x@A->bf16, @B->bf16, *scaling->bf16, base+delta->bf16.
Expected moved: A-out, B-out, scaled delta rounded in training only (base rounded on both). Measured 28% by 1 ulp, 10% by more (delta comparable to base here)."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
SCALE = 1.7


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    D, O, R = 512, 512, 16
    return (torch.randn(64, D, generator=g).to(bf), (D ** -0.5 * torch.randn(O, D, generator=g)).to(bf),
            (D ** -0.5 * torch.randn(R, D, generator=g)).to(bf), (0.1 * torch.randn(O, R, generator=g)).to(bf))


def inference(x, w, a, b):
    base = F.linear(x, w)
    buf = (x.float() @ a.float().t()) * SCALE
    return (base.float() + buf @ b.float().t()).to(bf)


def training(x, w, a, b):
    return F.linear(x, w) + F.linear(F.linear(x, a), b) * SCALE
