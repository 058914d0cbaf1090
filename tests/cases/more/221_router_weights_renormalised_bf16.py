"""Mixtral-like router: softmax fp32, top-2, renormalise. The trainer casts the chosen weights to bf16 before the division, the engine after.
Expected moved: chosen weights and their sum in training only (the quotient is rounded on both)."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["topk_weights", "weight_sum"], moved_inference_only=[], same_outputs=[1])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return ((2 * torch.randn(512, 16, generator=g)).to(bf),)


def inference(logits):
    w, i = torch.topk(torch.softmax(logits.float(), -1), 4, dim=-1)
    return (w / w.sum(-1, keepdim=True)).to(bf), i


def training(logits):
    w, i = torch.topk(F.softmax(logits, dim=-1, dtype=torch.float), 4, dim=-1)
    w = w.to(logits.dtype)
    return w / w.sum(dim=-1, keepdim=True), i


def aligned(rnd, logits):
    w, i = torch.topk(torch.softmax(logits.float(), -1), 4, dim=-1)
    w = rnd("topk_weights", w)
    return (w / rnd("weight_sum", w.sum(-1, keepdim=True))).to(bf), i
