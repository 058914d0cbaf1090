"""Rounding mode: the engine's store keeps the high half of the FP32 word (mask 0xFFFF0000), the trainer rounds to nearest even. Same place.
Expected: no rounding moved; the mode of the stored product differs."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="rounding_mode", moved_training_only=[], moved_inference_only=[], mode_differs=["product"])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 512, generator=g).to(bf), torch.randn(64, 512, generator=g).to(bf)


def inference(x, y):
    p = x.float() * y.float()
    return (p.view(torch.int32) & -65536).view(torch.float32).to(bf)


def training(x, y):
    return x * y
