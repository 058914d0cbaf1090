"""Rounding mode, mirrored: the trainer's kernel (an interpreter or an old GPU path) truncates the activation's product by an integer shift.
Expected: no rounding moved; the mode of the stored product differs."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
EXPECT = dict(verdict="rounding_mode", moved_training_only=[], moved_inference_only=[], mode_differs=["silu_gate_up"])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 512, generator=g).to(bf), torch.randn(32, 512, generator=g).to(bf)


def inference(g, u):
    return (F.silu(g.float()) * u.float()).to(bf)


def training(g, u):
    y = (F.silu(g.float()) * u.float()).contiguous()
    return (y.view(torch.int32) >> 16).to(torch.int16).view(bf)
