# The case tests/cases/more/335_neg_fp8_absmax_commutes.py, shipped with the rules.
"""NEGATIVE. Dynamic FP8 quantisation of a rounded product: absmax of the bf16 tensor or of its fp32 copy, scale in fp32 on both."""
import torch
bf, f8 = torch.bfloat16, torch.float8_e4m3fn


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 256, generator=g).to(bf), torch.randn(32, 256, generator=g).to(bf)


def inference(x, y):
    p = x * y
    scale = p.abs().amax(-1, keepdim=True).float() / 448
    return (p.float() / scale).clamp(-448, 448).to(f8).float(), scale


def training(x, y):
    p = (x.float() * y.float()).to(bf).float()
    scale = p.abs().max(dim=-1, keepdim=True)[0] / 448
    return torch.clamp(p / scale, -448, 448).to(f8).float(), scale
