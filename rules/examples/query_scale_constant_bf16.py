# The case tests/cases/more/212_query_scale_constant_bf16.py, shipped with the rules.
"""Query scale head_dim ** -0.5 held as a bf16 tensor by the engine and as a python float by the trainer; the product is rounded on both sides.
Expected moved: the constant in inference only."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return (torch.randn(2, 4, 32, 96, generator=g).to(bf),)


def inference(q):
    return q * torch.tensor(96 ** -0.5, dtype=bf)


def training(q):
    return q * 96 ** -0.5
