# The case tests/cases/more/230_lora_power_of_two_scaling.py, shipped with the rules.
"""LoRA with scaling 2 (alpha = 2r): the engine rounds after the shrink and after the expand, the trainer keeps the delta in fp32. Scaling by 2 is exact.
Expected moved: x@A and (x@A)@B in inference only; the scaled delta is no rounding of its own."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 256, generator=g).to(bf), torch.randn(32, 256, generator=g).to(bf), (256 ** -0.5 * torch.randn(16, 256, generator=g)).to(bf), (0.1 * torch.randn(256, 16, generator=g)).to(bf)


def inference(base, x, a, b):
    return base + F.linear(F.linear(x, a), b) * 2.0


def training(base, x, a, b):
    return (base.float() + 2.0 * (x.float() @ a.float().t() @ b.float().t())).to(bf)
