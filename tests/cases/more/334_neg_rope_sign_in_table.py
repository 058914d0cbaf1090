"""NEGATIVE. The rotation's minus folded into a signed sin table and a roll, against rotate_half; both bf16 op by op."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    ang = torch.outer(torch.arange(32).float() + 4, 1e4 ** (-torch.arange(0, 64, 2).float() / 64))
    c, s = ang.cos().to(bf), ang.sin().to(bf)
    return torch.randn(4, 32, 64, generator=g).to(bf), torch.cat((c, c), -1), torch.cat((s, s), -1), torch.cat((-s, s), -1)


def inference(q, c, s, signed):
    return q * c + torch.roll(q, 32, -1) * signed


def training(q, c, s, signed):
    return q * c + torch.cat((-q[..., 32:], q[..., :32]), -1) * s
