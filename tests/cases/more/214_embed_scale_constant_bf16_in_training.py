"""Embedding scale sqrt(hidden), mirrored: the trainer casts the normaliser to the embedding's dtype, the engine multiplies by the float.
Expected moved: the constant in training only."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["embed_scale_constant"], moved_inference_only=[])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (2, 24), generator=g), (0.02 * torch.randn(256, 1152, generator=g)).to(bf)


def inference(ids, table):
    return F.embedding(ids, table) * 1152 ** 0.5


def training(ids, table):
    x = F.embedding(ids, table)
    return x * torch.tensor(1152 ** 0.5, dtype=x.dtype)


def aligned(rnd, ids, table):
    return (F.embedding(ids, table).float() * rnd("embed_scale_constant", torch.tensor(1152 ** 0.5))).to(bf)
