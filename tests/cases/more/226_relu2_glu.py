"""Squared-ReLU gate (Nemotron-like) times up: the square is rounded by the trainer, kept by the fused kernel. relu itself rounds nothing.
Expected moved: relu(gate)^2 in training only."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["relu_squared"], moved_inference_only=[])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 512, generator=g).to(bf), torch.randn(32, 512, generator=g).to(bf)


def inference(g, u):
    g = F.relu(g.float())
    return (g * g * u.float()).to(bf)


def training(g, u):
    return torch.square(F.relu(g)) * u


def aligned(rnd, g, u):
    g = F.relu(g.float())
    return (rnd("relu_squared", g * g) * u.float()).to(bf)
