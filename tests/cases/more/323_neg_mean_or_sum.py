"""NEGATIVE. A mean against a sum over a length, 512 and 320 (no power of two), inside an fp32 norm."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same", noise="FP32 spelling")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 512, generator=g).to(bf), torch.randn(64, 320, generator=g).to(bf)


def inference(x, y):
    def norm(h):
        h = h.float()
        return (h * torch.rsqrt((h * h).sum(-1, keepdim=True) / h.shape[-1] + 1e-6)).to(bf)
    return norm(x), norm(y)


def training(x, y):
    def norm(h):
        h = h.float()
        return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(bf)
    return norm(x), norm(y)
