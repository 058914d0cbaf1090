"""A sum over four experts written out term by term, as Inductor unrolls reductions of up to eight (`unroll_reductions_threshold`), against
`(y * w).sum(1)` in eager code: each product stays in FP32 in one and is rounded to BF16 in the other. One value, whole, not a quarter of it."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["weighted_term"], moved_inference_only=[])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(16, 4, 64, generator=g).to(bf), torch.softmax(torch.randn(16, 4, generator=g), -1).to(bf)


def inference(y, w):
    t = [y[:, i].float() * w[:, i, None].float() for i in range(4)]
    return (((t[0] + t[1]) + t[2]) + t[3]).to(bf)


def training(y, w):
    return (y * w[..., None]).sum(1)


def aligned(rnd, y, w):
    t = rnd("weighted_term", y.float() * w[..., None].float(), bf)
    return t.sum(1).to(bf)
