# The case tests/cases/more/225_shared_expert_gate.py, shipped with the rules.
"""Qwen2-MoE shared expert: routed + sigmoid(gate) * shared. The engine fuses the tail in fp32.
Expected moved: sigmoid(gate) and its product with the shared output in training only."""
import torch
bf = torch.bfloat16


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 512, generator=g).to(bf), torch.randn(64, 512, generator=g).to(bf), torch.randn(64, 1, generator=g).to(bf)


def inference(routed, shared, gate):
    return (routed.float() + torch.sigmoid(gate.float()) * shared.float()).to(bf)


def training(routed, shared, gate):
    return routed + torch.sigmoid(gate) * shared
