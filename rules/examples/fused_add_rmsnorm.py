# The case tests/cases/public/04_fused_add_rmsnorm.py, shipped with the rules.
"""Residual add + RMSNorm (Llama/Qwen/GLM decoder layer), two outputs (normed, residual).
Addresses: https://github.com/vllm-project/vllm/issues/52104 , PRs #52151 #52243; https://github.com/vllm-project/vllm-omni/pull/6878
inference (vLLM native IR under Inductor): s = fp32(x)+fp32(r); variance AND normalisation use the unrounded s; residual_out = bf16(s).
training  (HF / vllm_c kernel)           : s = bf16(x+r); norm reads the rounded s.  Both cast xhat to bf16 before the bf16 weight multiply.
Expected moved: the residual sum is rounded before the norm in training only. residual_out identical. normed: 17% by 1 ulp, 3% by 2 ulp.
Note: torch.compile of this `inference` also elides the explicit xhat cast; see 34."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    T, D = 64, 2048
    return (torch.randn(T, D, generator=g).to(bf), (4 * torch.randn(T, D, generator=g)).to(bf),
            (1 + 0.3 * torch.randn(D, generator=g)).to(bf))


def inference(x, r, w):
    s = x.float() + r.float()
    out_r = s.to(bf)
    n = s * torch.rsqrt(s.pow(2).mean(-1, keepdim=True) + 1e-5)
    return n.to(bf) * w, out_r


def training(x, r, w):
    s = r + x
    h = s.float()
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5)
    return w * h.to(bf), s
