"""NEGATIVE. roll, flip, repeat, repeat_interleave and permute before or after the rounding."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(16, 4, 32, generator=g).to(bf), torch.randn(16, 4, 32, generator=g).to(bf)


def inference(x, y):
    s = x.float() + y.float()
    return torch.roll(s, 16, -1).to(bf), s.flip(-1).to(bf), s.permute(1, 0, 2).repeat(1, 2, 1).to(bf), s.repeat_interleave(2, 1).to(bf)


def training(x, y):
    s = x + y
    return torch.cat((s[..., 16:], s[..., :16]), -1), torch.flip(s, (-1,)), s.transpose(0, 1).repeat(1, 2, 1), s[:, :, None].expand(16, 4, 2, 32).reshape(16, 8, 32)
