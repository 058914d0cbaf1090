"""NEGATIVE. A scale as a python float or as an fp32 tensor, sqrt(d) or d ** 0.5, divided or multiplied by its inverse: no constant is rounded to bf16."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same", noise="FP32 spelling")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 96, generator=g).to(bf), torch.tensor(96.0)


def inference(q, d):
    return (q.float() * 96 ** -0.5).to(bf)


def training(q, d):
    return (q / torch.sqrt(d).float()).to(bf)
