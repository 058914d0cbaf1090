"""MoE: the routing weight multiplies the activation before the down projection in the engine (one fp32 kernel, one cast), with silu rounded and the product rounded twice in the trainer.
Expected moved: silu(gate) and silu(gate)*up in training only; the weighted activation is rounded on both."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["silu_gate", "silu_gate_up"], moved_inference_only=[])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 512, generator=g).to(bf), torch.randn(64, 512, generator=g).to(bf), torch.rand(64, 1, generator=g).to(bf)


def inference(g, u, w):
    return (F.silu(g.float()) * u.float() * w.float()).to(bf)


def training(g, u, w):
    return F.silu(g) * u * w


def aligned(rnd, g, u, w):
    return (rnd("silu_gate_up", rnd("silu_gate", F.silu(g.float())) * u.float()) * w.float()).to(bf)
