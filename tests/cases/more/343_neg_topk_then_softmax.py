"""NEGATIVE. Softmax over the chosen logits against the chosen probabilities renormalised, both in fp32: one value, two ways."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="same", noise="FP32 spelling")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return ((2 * torch.randn(64, 32, generator=g)).to(bf),)


def inference(logits):
    v = torch.topk(logits.float(), 4, dim=-1)[0]
    return torch.softmax(v, -1)


def training(logits):
    w = torch.topk(torch.softmax(logits.float(), -1), 4, dim=-1)[0]
    return w / w.sum(-1, keepdim=True)
