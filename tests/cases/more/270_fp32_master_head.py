"""The trainer's head multiplies with its fp32 master weight, the engine with the bf16 copy it was sent; fp32 logits on both.
Expected moved: the head's weight in inference only."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=[], moved_inference_only=["lm_head_weight"], unit="nats")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    w = 0.3 * torch.randn(512, 128, generator=g)
    return torch.randn(16, 128, generator=g).to(bf), w, w.to(bf)


def inference(h, master, w):
    return torch.log_softmax(F.linear(h.float(), w.float()), -1)


def training(h, master, w):
    return torch.log_softmax(F.linear(h.float(), master), -1)


def aligned(rnd, h, master, w):
    return torch.log_softmax(F.linear(h.float(), rnd("lm_head_weight", master)), -1)
