# The case tests/cases/public/02_qwen2_rope.py, shipped with the rules.
"""Qwen2/Llama NeoX RoPE, q and k, bf16 cos/sin.
Addresses: https://github.com/pytorch/pytorch/issues/182225 , https://github.com/pytorch/pytorch/issues/159239 (HF rotate_half RoPE,
           Inductor keeps both products in fp32), https://github.com/InternLM/lmdeploy/pull/4133
inference: fp32 q*cos + rot(q)*sin, one cast.   training: two products rounded to bf16, then the sum rounded.
Expected moved: x*cos and rot(x)*sin rounded in training only (2 per element, for q and for k). Usually 0..1 ulp, many ulp at cancellation."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    T, Hq, Hk, D = 64, 14, 2, 64
    inv = 1e6 ** (-torch.arange(0, D, 2).float() / D)
    ang = torch.outer(torch.arange(T).float(), inv)
    emb = torch.cat((ang, ang), -1)
    return (torch.randn(1, Hq, T, D, generator=g).to(bf), torch.randn(1, Hk, T, D, generator=g).to(bf),
            emb.cos().to(bf)[None], emb.sin().to(bf)[None])


def _half(x):
    h = x.shape[-1] // 2
    return torch.cat((-x[..., h:], x[..., :h]), -1)


def inference(q, k, cos, sin):
    c, s = cos.float().unsqueeze(1), sin.float().unsqueeze(1)
    return tuple((t.float() * c + _half(t.float()) * s).to(bf) for t in (q, k))


def training(q, k, cos, sin):
    c, s = cos.unsqueeze(1), sin.unsqueeze(1)
    return tuple((t * c) + (_half(t) * s) for t in (q, k))
