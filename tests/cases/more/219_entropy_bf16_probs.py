"""Token entropy for the policy loss, logsumexp - sum(p * logit), with p stored in bf16 by the trainer and kept in fp32 elsewhere.
Expected moved: p in training only."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["probs"], moved_inference_only=[], unit="nats")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return ((3 * torch.randn(48, 512, generator=g)).to(bf),)


def inference(logits):
    x = logits.float()
    return torch.logsumexp(x, -1) - (torch.softmax(x, -1) * x).sum(-1)


def training(logits):
    x = logits.float()
    p = torch.softmax(logits, -1)
    return torch.logsumexp(x, -1) - (p.float() * x).sum(-1)


def aligned(rnd, logits):
    x = logits.float()
    return torch.logsumexp(x, -1) - (rnd("probs", torch.softmax(x, -1)) * x).sum(-1)
