# The case tests/cases/public/105_neg_layout_roundtrip.py, shipped with the rules.
"""NEGATIVE. View/transpose/reshape shuffles and a lossless upcast-downcast round trip (bf16->fp32->bf16) around elementwise RoPE and a GQA repeat."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    ang = torch.outer(torch.arange(32).float(), 1e4 ** (-torch.arange(0, 64, 2).float() / 64))
    e = torch.cat((ang, ang), -1)
    return torch.randn(2, 32, 4 * 64, generator=g).to(bf), e.cos().to(bf), e.sin().to(bf)


def _half(x):
    h = x.shape[-1] // 2
    return torch.cat((-x[..., h:], x[..., :h]), -1)


def inference(k, cos, sin):
    x = k.float().to(bf).view(64, 4, 64)                       # [B*S, H, D]
    c, s = cos.repeat(2, 1)[:, None], sin.repeat(2, 1)[:, None]
    y = x * c + _half(x) * s
    return y.view(2, 32, 4, 64).permute(0, 2, 1, 3)[:, :, None].expand(2, 4, 3, 32, 64).reshape(2, 12, 32, 64)


def training(k, cos, sin):
    x = k.view(2, 32, 4, 64).transpose(1, 2)                    # [B, H, S, D]
    y = x * cos[None, None] + _half(x) * sin[None, None]
    return y.repeat_interleave(3, dim=1)
