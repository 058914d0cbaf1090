"""Query scale head_dim ** -0.5 held as a bf16 tensor by the engine and as a python float by the trainer; the product is rounded on both sides.
Expected moved: the constant in inference only."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=[], moved_inference_only=["query_scale_constant"])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return (torch.randn(2, 4, 32, 96, generator=g).to(bf),)


def inference(q):
    return q * torch.tensor(96 ** -0.5, dtype=bf)


def training(q):
    return q * 96 ** -0.5


def aligned(rnd, q):
    return (q.float() * rnd("query_scale_constant", torch.tensor(96 ** -0.5))).to(bf)
