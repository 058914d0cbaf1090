# The case tests/cases/public/34_fused_add_rmsnorm_compiled.py, shipped with the rules.
"""Residual add + RMSNorm as Inductor really compiles vLLM's native IR: the explicit xhat->weight.dtype cast of the source is elided too.
Addresses: https://github.com/vllm-project/vllm/issues/52104 (schedule of the source), https://github.com/pytorch/pytorch/issues/158699 (compiled vLLM rmsnorm
           differs from eager), https://github.com/pytorch/pytorch/issues/179561 (explicit casts elided)
inference: s fp32, variance, normalise and weight multiply all fp32, one cast; residual_out = bf16(s).
training (HF): s = bf16(x+r); norm of rounded s; xhat->bf16; w*xhat->bf16.
Expected moved: residual sum (as seen by the norm) and xhat rounded in training only. residual_out identical. 0..2 ulp.
Checked: torch.compile(04.inference) on CPU equals this file's inference (see report)."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    T, D = 64, 2048
    return (torch.randn(T, D, generator=g).to(bf), (4 * torch.randn(T, D, generator=g)).to(bf),
            (1 + 0.3 * torch.randn(D, generator=g)).to(bf))


def inference(x, r, w):
    s = x.float() + r.float()
    n = s * torch.rsqrt(s.pow(2).mean(-1, keepdim=True) + 1e-5)
    return (n * w.float()).to(bf), s.to(bf)


def training(x, r, w):
    s = r + x
    h = s.float()
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5)
    return w * h.to(bf), s
