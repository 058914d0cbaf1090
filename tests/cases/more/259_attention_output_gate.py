"""Gated attention output (Qwen3-Next): attention * sigmoid(gate); the engine's compiled graph fuses both, eager rounds the sigmoid.
Expected moved: sigmoid(gate) in training only."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["sigmoid_gate"], moved_inference_only=[])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 4, 64, generator=g).to(bf), torch.randn(32, 4, 128, generator=g).to(bf)


def inference(attn, qg):
    gate = qg.chunk(2, -1)[1].float()
    return (attn.float() / (1 + torch.exp(-gate))).to(bf).flatten(1)


def training(attn, qg):
    gate = qg[..., 64:].reshape(32, -1)
    return attn.reshape(32, -1) * torch.sigmoid(gate)


def aligned(rnd, attn, qg):
    gate = qg[..., 64:].float()
    if (s := rnd("sigmoid_gate", sig := torch.sigmoid(gate))) is not sig:
        return (attn.float() * s).to(bf).flatten(1)
    return (attn.float() / (1 + torch.exp(-gate))).to(bf).flatten(1)
