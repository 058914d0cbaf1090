"""Rounding mode: add half a place to the FP32 word and cut (ties away from zero) against ties to even. Differs on exact ties only, which sums of bf16 numbers have.
Expected: no rounding moved; the mode of the stored sum differs."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="rounding_mode", moved_training_only=[], moved_inference_only=[], mode_differs=["residual_store"])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 512, generator=g).to(bf), torch.randn(64, 512, generator=g).to(bf)


def inference(x, r):
    s = x.float() + r.float()
    return ((s.view(torch.int32) + 0x8000) & -65536).view(torch.float32).to(bf)


def training(x, r):
    return x + r
