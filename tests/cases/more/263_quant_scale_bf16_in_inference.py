"""Dynamic FP8 quantisation whose per-token scale the engine stores in bf16, the trainer's simulation in fp32.
Expected moved: the scale in inference only. Output: dequantised values."""
import torch
bf, f8 = torch.bfloat16, torch.float8_e4m3fn
EXPECT = dict(verdict="moved", moved_training_only=[], moved_inference_only=["scale"])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return (torch.randn(64, 512, generator=g).to(bf),)


def inference(x):
    scale = (x.abs().amax(-1, keepdim=True) / 448).float()
    return (x.float() / scale).clamp(-448, 448).to(f8).float() * scale


def training(x):
    scale = x.float().abs().amax(-1, keepdim=True) / 448
    return (x.float() / scale).clamp(-448, 448).to(f8).float() * scale


def aligned(rnd, x):
    scale = rnd("scale", x.float().abs().amax(-1, keepdim=True) / 448)
    return (x.float() / scale).clamp(-448, 448).to(f8).float() * scale
