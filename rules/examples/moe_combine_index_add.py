# The case tests/cases/more/223_moe_combine_index_add.py, shipped with the rules.
"""MoE combine with index_add_, two experts per token: the trainer weighs each expert's output in bf16 and adds into a bf16 buffer, the engine in fp32.
Expected moved: the weighted term in training only (the sum of two is the output, rounded on both; the first add to zero is exact)."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    token = torch.cat((torch.randperm(32, generator=g), torch.randperm(32, generator=g)))
    return torch.randn(64, 256, generator=g).to(bf), torch.rand(64, 1, generator=g).to(bf), token


def inference(y, w, token):
    out = torch.zeros(32, 256, dtype=torch.float32)
    return out.index_add_(0, token, y.float() * w.float()).to(bf)


def training(y, w, token):
    out = torch.zeros(32, 256, dtype=bf)
    return out.index_add_(0, token, y * w)
