# The case tests/cases/public/08_llama4_complex_rope.py, shipped with the rules.
"""Llama-4 interleaved RoPE: complex fp32 rotation (HF) vs real cos/sin rotation with the table stored in bf16 (engine).
Addresses: https://github.com/vllm-project/vllm/issues/863 (RoPE should be fp32 like the complex reference), https://github.com/vllm-project/vllm/pull/1004 ,
           https://github.com/pytorch/pytorch/issues/159239 (notes Llama-4 casts explicitly, Qwen does not), https://github.com/pytorch/torchtitan/issues/15
inference: cos/sin ROUNDED to bf16 in the cache; rotation in fp32; one cast.
training : fp32 complex multiply (view_as_complex), one cast.
Note: written as ang.cos().to(bf16).float() INSIDE the graph, Inductor elides the round trip (measured), so the bf16 table must be a buffer/input.
Expected moved: cos and sin rounded on the INFERENCE side only (direction reversed vs cases 01/02). 0..1 ulp, more at cancellation; grows with position only through the table."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    T, H, D = 64, 8, 128
    inv = 5e5 ** (-torch.arange(0, D, 2).float() / D)
    ang = torch.outer(torch.arange(T).float() + 500, inv)
    return torch.randn(1, T, H, D, generator=g).to(bf), ang, ang.cos().to(bf), ang.sin().to(bf)   # last two: the engine's cached bf16 buffers


def inference(q, ang, cos_buf, sin_buf):
    cos, sin = cos_buf.float()[None, :, None], sin_buf.float()[None, :, None]
    x1, x2 = q[..., ::2].float(), q[..., 1::2].float()
    return torch.stack((x1 * cos - x2 * sin, x2 * cos + x1 * sin), -1).flatten(-2).to(bf)


def training(q, ang, cos_buf, sin_buf):
    freqs = torch.polar(torch.ones_like(ang), ang)
    z = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))
    return torch.view_as_real(z * freqs[None, :, None, :]).flatten(3).type_as(q)
