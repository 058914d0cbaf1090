"""NEGATIVE. The bf16 cos/sin cache read by position ids (one merged cache, split after the gather) against per-token tables; rotation in bf16 op by op."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    ang = torch.outer(torch.arange(128).float(), 1e4 ** (-torch.arange(0, 64, 2).float() / 64))
    cache = torch.cat((ang.cos(), ang.sin()), -1).to(bf)
    pos = torch.randint(5, 128, (24,), generator=g)
    return torch.randn(24, 4, 64, generator=g).to(bf), pos, cache, cache[pos][:, :32].contiguous(), cache[pos][:, 32:].contiguous()


def inference(q, pos, cache, cos, sin):
    c, s = cache.index_select(0, pos).chunk(2, -1)
    c, s = c[:, None], s[:, None]
    a, b = q.chunk(2, -1)
    return torch.cat((a * c - b * s, b * c + a * s), -1)


def training(q, pos, cache, cos, sin):
    c, s = torch.cat((cos, cos), -1)[:, None], torch.cat((sin, sin), -1)[:, None]
    return q * c + torch.cat((-q[..., 32:], q[..., :32]), -1) * s
