"""SwiGLU, mirrored: the engine falls back to an unfused silu and a multiply, the trainer uses a fused (Liger-like) kernel.
Expected moved: silu(gate) in inference only."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=[], moved_inference_only=["silu_gate"])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 1024, generator=g).to(bf), torch.randn(32, 1024, generator=g).to(bf)


def inference(gate, up):
    return F.silu(gate) * up


def training(gate, up):
    return (F.silu(gate.float()) * up.float()).to(bf)


def aligned(rnd, gate, up):
    return (rnd("silu_gate", F.silu(gate.float())) * up.float()).to(bf)
