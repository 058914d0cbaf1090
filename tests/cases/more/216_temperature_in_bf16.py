"""Sampling temperature applied to bf16 logits before the upcast (logits.div_(T)) in the trainer, to fp32 logits in the sampler.
Expected moved: logits/T in training only."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["logits_over_t"], moved_inference_only=[], unit="nats")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return ((8 * torch.randn(16, 1024, generator=g)).to(bf),)


def inference(logits):
    return (logits.float() / 0.7).log_softmax(-1)


def training(logits):
    return F.log_softmax((logits / 0.7).float(), dim=-1)


def aligned(rnd, logits):
    return torch.log_softmax(rnd("logits_over_t", logits.float() / 0.7), -1)
