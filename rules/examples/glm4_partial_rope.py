# The case tests/cases/public/09_glm4_partial_rope.py, shipped with the rules.
"""GLM-4 partial (rotary_dim = head_dim/2) interleaved RoPE.
Addresses: https://github.com/vllm-project/vllm/pull/43676 (fused kernel must rotate only rotary_dim), https://github.com/pie-project/pie/pull/536
           (bf16 table + fp32/bf16 rotate for a partial-rotary model), https://github.com/sgl-project/sglang/pull/33117
inference: fp32 rotation of the first 64 lanes, one cast, lanes 64..127 copied through.
training (HF): both products bf16, sum bf16, cat with the pass-through lanes.
Expected moved: x*cos, rot(x)*sin in training only, and ONLY for lanes < rotary_dim; pass-through lanes must be reported as identical."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    T, H, D, R = 64, 8, 128, 64
    inv = 1e4 ** (-torch.arange(0, R, 2).float() / R)
    ang = torch.outer(torch.arange(T).float(), inv)
    return torch.randn(1, H, T, D, generator=g).to(bf), ang.cos().to(bf), ang.sin().to(bf)


def inference(q, cos, sin):
    R = 2 * cos.shape[-1]
    a, b = q[..., :R:2].float(), q[..., 1:R:2].float()
    c, s = cos.float(), sin.float()
    rot = torch.stack((a * c - b * s, b * c + a * s), -1).flatten(-2).to(bf)
    return torch.cat((rot, q[..., R:]), -1)


def training(q, cos, sin):
    c, s = cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)
    R = c.shape[-1]
    x, rest = q[..., :R], q[..., R:]
    half = torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)
    return torch.cat((x * c + half * s, rest), -1)
