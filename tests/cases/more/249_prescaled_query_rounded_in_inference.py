"""Scale folded into q, mirrored: the engine rounds q * scale before the scores, the trainer scales fp32 scores (head_dim 80: no power of two).
Expected moved: the scaled query in inference only."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=[], moved_inference_only=["q_scaled"])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(2, 48, 80, generator=g).to(bf), torch.randn(2, 48, 80, generator=g).to(bf)


def inference(q, k):
    return torch.einsum("hqd,hkd->hqk", (q * 80 ** -0.5).float(), k.float())


def training(q, k):
    return torch.einsum("hqd,hkd->hqk", q.float(), k.float()) * 80 ** -0.5


def aligned(rnd, q, k):
    s = 80 ** -0.5
    qs = q.float() * s
    if rnd("q_scaled", qs) is not qs:
        return torch.einsum("hqd,hkd->hqk", rnd("q_scaled", qs), k.float())
    return torch.einsum("hqd,hkd->hqk", q.float(), k.float()) * s
