"""NEGATIVE. Both sides round the residual sum before the norm; one writes the sum in an fp32 island and reads its bf16 copy back."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 512, generator=g).to(bf), (3 * torch.randn(32, 512, generator=g)).to(bf), (1 + 0.3 * torch.randn(512, generator=g)).to(bf)


def _norm(h, w):
    return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(bf) * w


def inference(x, r, w):
    s = (x.float() + r.float()).to(bf)
    return _norm(s.float(), w), s


def training(x, r, w):
    r = r + x
    return _norm(r.to(torch.float32), w), r
