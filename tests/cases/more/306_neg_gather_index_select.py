"""NEGATIVE. Rows and elements picked by index before or after the rounding (last-token logits, chosen experts)."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 128, generator=g).to(bf), torch.randn(64, 128, generator=g).to(bf), torch.randint(0, 64, (20,), generator=g), torch.randint(0, 128, (20, 5), generator=g)


def inference(x, y, rows, cols):
    p = x.float() * y.float()
    picked = p.index_select(0, rows)
    return picked.to(bf), picked.gather(1, cols).to(bf)


def training(x, y, rows, cols):
    p = (x * y)[rows]
    return p, torch.take_along_dim(p, cols, 1)
