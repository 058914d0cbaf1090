"""Gemma-like query_pre_attn_scalar ** -0.5 registered as a buffer, which a module-wide cast turned into bf16 in the trainer; the engine has a float.
Expected moved: the constant in training only. Scores are fp32."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["query_scale_constant"], moved_inference_only=[])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(2, 32, 64, generator=g).to(bf), torch.randn(2, 32, 64, generator=g).to(bf), torch.tensor(168 ** -0.5).to(bf)


def inference(q, k, scale):
    return torch.matmul(q.float(), k.float().transpose(-1, -2)) * 168 ** -0.5


def training(q, k, scale):
    return torch.matmul(q.float(), k.float().transpose(-1, -2)) * scale.float()


def aligned(rnd, q, k, scale):
    return torch.matmul(q.float(), k.float().transpose(-1, -2)) * rnd("query_scale_constant", torch.tensor(168 ** -0.5))
