# The case tests/cases/more/244_fp8_activation_in_inference.py, shipped with the rules.
"""The engine quantises a linear layer's input to e4m3 (static scale 1/16), the trainer feeds bf16. A value the trainer never rounds at all.
Expected moved: the input, rounded to float8_e4m3fn, in inference only."""
import torch
bf, f8 = torch.bfloat16, torch.float8_e4m3fn


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 256, generator=g).to(bf), (256 ** -0.5 * torch.randn(128, 256, generator=g)).to(bf)


def inference(x, w):
    x8 = (x.float() * 16).to(f8)
    return ((x8.float() @ w.float().t()) * 0.0625).to(bf)


def training(x, w):
    return (x.float() @ w.float().t()).to(bf)
