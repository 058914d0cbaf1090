# The case tests/cases/public/03_swiglu.py, shipped with the rules.
"""SwiGLU gate product (Llama/Qwen MLP), merged gate_up tensor.
Addresses: https://github.com/linkedin/Liger-Kernel/pull/783 , https://github.com/vllm-project/vllm-omni/pull/6283 (review: fused
           silu_and_mul rounds once, F.silu(gate)*up rounds twice), https://github.com/XPU-Forces/mojo_opset/pull/461 (27% of elements, same shape)
inference: fp32 silu(g)*u, one cast.   training: silu(g)->bf16, *u->bf16.
Expected moved: silu(g) rounded in training only. <=1 ulp."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return (torch.randn(32, 2 * 1536, generator=g).to(bf),)


def inference(gu):
    g, u = gu.float().chunk(2, -1)
    return (F.silu(g) * u).to(bf)


def training(gu):
    d = gu.shape[-1] // 2
    return F.silu(gu[..., :d]) * gu[..., d:]
