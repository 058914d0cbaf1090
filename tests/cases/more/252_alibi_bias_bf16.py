"""ALiBi: slopes times distances formed in bf16 by the trainer, in fp32 by the engine, added to fp32 scores (12 heads: slopes are no powers of two).
Expected moved: the bias in training only."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["alibi_bias"], moved_inference_only=[])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    slopes = torch.tensor([2 ** (-8 * (i + 1) / 12) for i in range(12)]).to(bf)
    return torch.randn(12, 40, 40, generator=g), slopes, torch.arange(40)


def inference(scores, slopes, pos):
    dist = (pos[None, :] - pos[:, None]).float()
    return torch.softmax(scores + slopes.float()[:, None, None] * dist, -1)


def training(scores, slopes, pos):
    dist = (pos[None, :] - pos[:, None]).to(bf)
    return torch.softmax(scores + (slopes[:, None, None] * dist).float(), -1)


def aligned(rnd, scores, slopes, pos):
    dist = (pos[None, :] - pos[:, None]).float()
    return torch.softmax(scores + rnd("alibi_bias", slopes.float()[:, None, None] * dist), -1)
