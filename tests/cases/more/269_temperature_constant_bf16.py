"""Temperature held as a bf16 tensor by the trainer, a float in the sampler; both divide fp32 logits.
Expected moved: the temperature in training only."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["temperature"], moved_inference_only=[], unit="nats")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return ((5 * torch.randn(16, 512, generator=g)).to(bf),)


def inference(logits):
    return torch.log_softmax(logits.float() / 0.7, -1)


def training(logits):
    t = torch.tensor(0.7, dtype=bf)
    return torch.log_softmax(logits.float() / t.float(), -1)


def aligned(rnd, logits):
    return torch.log_softmax(logits.float() / rnd("temperature", torch.tensor(0.7)), -1)
