# The case tests/cases/more/229_bias_rounded_in_inference.py, shipped with the rules.
"""Linear with bias, mirrored: a compiler unfuses addmm, so the engine rounds the product before the bias; the trainer's linear adds it in the epilogue.
Expected moved: the matmul's output in inference only."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 256, generator=g).to(bf), (256 ** -0.5 * torch.randn(320, 256, generator=g)).to(bf), torch.randn(320, generator=g).to(bf)


def inference(x, w, b):
    return F.linear(x, w) + b


def training(x, w, b):
    return F.linear(x, w, b)
