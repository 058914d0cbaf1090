"""Functions whose compiled kernels are regions of their own: what the engine's models do not show at once."""

import torch
from torch.nn.functional import gelu, layer_norm, silu

BF16 = torch.bfloat16
TOKENS = 8


def normal(*shape, dtype=BF16, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def tables(half, dtype=BF16):
    angles = torch.arange(5, 5 + TOKENS)[:, None] * torch.exp(-4 * torch.arange(half) / half)[None]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotated(x, cos, sin, pairs):
    """The first lanes in pairs rotated, the rest passed on."""
    width = 2 * cos.shape[-1]
    c, s = cos[:, None].float(), sin[:, None].float()
    if pairs == "interleaved":
        a, b = x[..., 0:width:2].float(), x[..., 1:width:2].float()
        turned = torch.stack([a * c - b * s, b * c + a * s], -1).flatten(-2)
    else:
        a, b = x[..., :width // 2].float(), x[..., width // 2:width].float()
        turned = torch.cat([a * c - b * s, b * c + a * s], -1)
    return torch.cat([turned.to(x.dtype), x[..., width:]], -1)


def partial_interleaved(q, cos, sin):
    return rotated(q, cos, sin, "interleaved")


def partial_interleaved_inputs(seed):
    return normal(TOKENS, 4, 64, seed=seed), *tables(16)


def partial_halves(q, cos, sin):
    return rotated(q, cos, sin, "halves")


partial_halves_inputs = partial_interleaved_inputs


def rope_float16(q, cos, sin):
    return rotated(q, cos, sin, "halves")


def rope_float16_inputs(seed):
    return normal(TOKENS, 4, 64, dtype=torch.float16, seed=seed), *tables(32, torch.float16)


def rope_by_rotate_half(q, cos, sin):
    turned = torch.cat([-q[..., 32:], q[..., :32]], -1)
    return q * cos[:, None] + turned * sin[:, None]


def rope_by_rotate_half_inputs(seed):
    cos, sin = tables(32)
    return normal(TOKENS, 4, 64, seed=seed), torch.cat([cos, cos], -1), torch.cat([sin, sin], -1)


def geglu_tanh(gate, up):
    return gelu(gate, approximate="tanh") * up


def geglu_tanh_inputs(seed):
    return normal(TOKENS, 320, seed=seed), normal(TOKENS, 320, seed=seed + 1)


def geglu_erf(gate, up):
    return gelu(gate) * up


geglu_erf_inputs = geglu_tanh_inputs


def swiglu_merged_float16(both):
    gate, up = both.chunk(2, -1)
    return silu(gate) * up


def swiglu_merged_float16_inputs(seed):
    return (normal(TOKENS, 512, dtype=torch.float16, seed=seed),)


def clamped_swiglu(gate, up):
    gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
    return (up + 1) * (gate * torch.sigmoid(gate * 1.702))


clamped_swiglu_inputs = geglu_tanh_inputs


def gemma_norm(x, weight):
    h = x.float()
    return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + weight.float())).to(x.dtype)


def gemma_norm_inputs(seed):
    return normal(TOKENS, 200, seed=seed), normal(200, seed=seed + 1)


def biased_layer_norm(x, weight, bias):
    return layer_norm(x, (x.shape[-1],), weight, bias, 1e-5)


def biased_layer_norm_inputs(seed):
    return normal(TOKENS, 256, seed=seed), normal(256, seed=seed + 1), normal(256, seed=seed + 2)


def residual_norm(x, residual, weight):
    total = x + residual
    h = total.float()
    return total, (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(BF16) * weight


def residual_norm_inputs(seed):
    return normal(TOKENS, 384, seed=seed), normal(TOKENS, 384, seed=seed + 1), normal(384, seed=seed + 2)


def softcap(x):
    return torch.tanh(x / 30.0) * 30.0


def softcap_inputs(seed):
    return (normal(TOKENS, 256, seed=seed),)


def causal_sum(x):
    return torch.cumsum(x.float(), -1).to(BF16)


def causal_sum_inputs(seed):
    return (normal(TOKENS, 64, seed=seed),)


FITTING = ("partial_interleaved", "partial_halves", "rope_float16", "rope_by_rotate_half", "geglu_tanh", "geglu_erf",
           "swiglu_merged_float16", "clamped_swiglu", "gemma_norm", "biased_layer_norm", "residual_norm", "softcap")
