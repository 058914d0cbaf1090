# The case tests/cases/public/01_qwen3_qknorm_rope.py, shipped with the rules.
"""Qwen3 attention: per-head Q RMSNorm followed by NeoX RoPE.
Addresses: https://github.com/flashinfer-ai/flashinfer/pull/3148 (review thread: round norm result to bf16 before RoPE
           to match the unfused reference), https://github.com/sgl-project/sglang/pull/38533,
           https://github.com/linkedin/Liger-Kernel/pull/1286
inference: norm, weight and rotation all in fp32; ONE cast at the store.
training : norm->bf16, weight*xhat->bf16, x*cos->bf16, rot(x)*sin->bf16, sum->bf16  (5 roundings; the last is shared).
Expected moved: xhat, xhat*w, x*cos, rot(x)*sin are rounded in training only. Per element typically 0..4 bf16 ulp, unbounded
relative change where the two RoPE products cancel. Table cos/sin is bf16 on both sides (not a difference)."""
import torch
bf, f32 = torch.bfloat16, torch.float32


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    T, H, D = 64, 8, 128
    q = torch.randn(T, H, D, generator=g).to(bf)
    w = (1 + 0.2 * torch.randn(D, generator=g)).to(bf)
    inv = 1e6 ** (-torch.arange(0, D, 2).float() / D)
    ang = torch.outer(torch.arange(T).float() + 100, inv)
    return q, w, ang.cos().to(bf), ang.sin().to(bf)          # cos/sin: [T, D/2]


def inference(q, w, cos, sin):
    x = q.float()
    x = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w.float()
    a, b = x.chunk(2, -1)
    c, s = cos.float()[:, None], sin.float()[:, None]
    return torch.cat((a * c - b * s, b * c + a * s), -1).to(bf)


def training(q, w, cos, sin):
    x = q.to(f32)
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    x = w * x.to(bf)
    c = torch.cat((cos, cos), -1).unsqueeze(1)
    s = torch.cat((sin, sin), -1).unsqueeze(1)
    h = x.shape[-1] // 2
    rot = torch.cat((-x[..., h:], x[..., :h]), -1)
    return x * c + rot * s
