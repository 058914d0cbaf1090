"""GeGLU with the exact (erf) GELU, mirrored: the engine's activation kernel stores gelu(gate), the trainer compiles the product into one kernel.
Expected moved: gelu(gate) in inference only."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=[], moved_inference_only=["gelu_gate"])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return (torch.randn(32, 2, 1024, generator=g).to(bf),)


def inference(gu):
    return F.gelu(gu[:, 0]) * gu[:, 1]


def training(gu):
    g, u = gu.float().unbind(1)
    return (u * F.gelu(g)).to(bf)


def aligned(rnd, gu):
    g, u = gu.float().unbind(1)
    return (u * rnd("gelu_gate", F.gelu(g))).to(bf)
