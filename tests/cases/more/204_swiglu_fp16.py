"""SwiGLU in FP16: a model served and trained in half precision. The same fault as in bf16, in another dtype.
Expected moved: silu(gate), rounded to float16, in training only."""
import torch
import torch.nn.functional as F
h16 = torch.float16
EXPECT = dict(verdict="moved", moved_training_only=["silu_gate"], moved_inference_only=[], dtype="float16")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return (torch.randn(32, 2048, generator=g).to(h16),)


def inference(gate_up):
    gate, up = gate_up.float().chunk(2, -1)
    return (gate / (1 + torch.exp(-gate)) * up).to(h16)


def training(gate_up):
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


def aligned(rnd, gate_up):
    gate, up = gate_up.float().chunk(2, -1)
    return (rnd("silu_gate", gate / (1 + torch.exp(-gate)), h16) * up).to(h16)
