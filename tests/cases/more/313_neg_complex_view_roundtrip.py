"""NEGATIVE. Real lanes seen as complex numbers and back, against strided slices, around one product and one cast."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 64, generator=g).to(bf), torch.randn(32, 32, generator=g).to(bf)


def inference(x, s):
    z = torch.view_as_complex(x.float().view(32, 32, 2))
    z = torch.view_as_real(z)
    return torch.stack((z[..., 0] * s.float(), z[..., 1]), -1).flatten(-2).to(bf)


def training(x, s):
    return torch.stack((x[..., ::2] * s, x[..., 1::2]), -1).flatten(-2)
