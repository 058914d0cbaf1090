# The case tests/cases/public/17_fused_bias_add.py, shipped with the rules.
"""Linear with bias: bias added inside the GEMM epilogue vs a separate bf16 add (Qwen2 qkv bias, whisper, LoRA-wrapped RowParallelLinear).
Addresses: https://github.com/vllm-project/vllm/pull/28972 , https://github.com/pytorch/pytorch/pull/176848 (Inductor unfused addmm for bf16: mm rounds before + bias),
           https://github.com/pytorch/pytorch/issues/150638
inference: fp32 accumulator + bias, one cast.   training: mm->bf16, +b->bf16.
Expected moved: mm output rounded in training only. 0..1 ulp, more where x@W ~ -b."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 512, generator=g).to(bf), (512 ** -0.5 * torch.randn(384, 512, generator=g)).to(bf), torch.randn(384, generator=g).to(bf)


def inference(x, w, b):
    return (x.float() @ w.float().t() + b.float()).to(bf)


def training(x, w, b):
    return torch.mm(x, w.t()) + b
