# The case tests/cases/more/228_gptoss_clamped_swiglu.py, shipped with the rules.
"""GPT-OSS activation: gate and up clamped, gate * sigmoid(1.702 * gate) * (up + 1); interleaved lanes. Eager bf16 in the trainer, one fp32 kernel in the engine.
Expected moved: alpha*gate, its sigmoid, the glu, and up+1 in training only; the clamps round nothing."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return ((3 * torch.randn(32, 1024, generator=g)).to(bf),)


def inference(x):
    x = x.float()
    g, u = x[..., ::2].clamp(max=7.0), x[..., 1::2].clamp(-7.0, 7.0)
    return ((u + 1) * (g * torch.sigmoid(g * 1.702))).to(bf)


def training(x):
    g, u = x[..., ::2], x[..., 1::2]
    g = g.clamp(min=None, max=7.0)
    u = u.clamp(min=-7.0, max=7.0)
    return (u + 1) * (g * torch.sigmoid(g * 1.702))
