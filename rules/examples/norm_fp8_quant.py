# The case tests/cases/public/23_norm_fp8_quant.py, shipped with the rules.
"""RMSNorm followed by static FP8 quantisation: quantise the fp32 norm result vs the bf16-rounded one (double rounding).
Addresses: https://github.com/NVIDIA/TensorRT-LLM/pull/14464 (~3% of FP8 elements flip; GSM8K 93.0 -> 83.5), https://github.com/vllm-project/vllm/pull/37838
inference: fp8(fp32 xhat*w / scale).   training/unfused: xhat*w -> bf16, then fp8(bf16 / scale).
Expected moved: the normed value rounded to bf16 in training only, before a SECOND rounding to e4m3. Most elements equal; a few percent move by one e4m3 step (2^-4..2^-3 relative)."""
import torch
bf, f8 = torch.bfloat16, torch.float8_e4m3fn


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 2048, generator=g).to(bf), (1 + 0.3 * torch.randn(2048, generator=g)).to(bf)


def _n(x, w):
    h = x.float()
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * w.float()


def inference(x, w):
    return (_n(x, w) / 0.0123).clamp(-448, 448).to(f8).float()


def training(x, w):
    return (_n(x, w).to(bf).float() / 0.0123).clamp(-448, 448).to(f8).float()
