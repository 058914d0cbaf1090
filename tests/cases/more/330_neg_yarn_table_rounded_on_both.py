"""NEGATIVE. YaRN table scaled in fp32 then rounded to bf16: once per half and concatenated, once whole; rotation in bf16 op by op on both."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same")
FACTOR = 1.2079


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(4, 32, 64, generator=g).to(bf), torch.outer(torch.arange(32).float() + 12, 1e5 ** (-torch.arange(0, 64, 2).float() / 64))


def inference(q, ang):
    c, s = (ang.cos() * FACTOR).to(bf), (FACTOR * ang.sin()).to(bf)
    a, b = q.chunk(2, -1)
    return torch.cat((a * c - b * s, b * c + a * s), -1)


def training(q, ang):
    emb = torch.cat((ang, ang), -1)
    c, s = (emb.cos() * FACTOR).to(bf), (emb.sin() * FACTOR).to(bf)
    return q * c + torch.cat((-q[..., 32:], q[..., :32]), -1) * s
