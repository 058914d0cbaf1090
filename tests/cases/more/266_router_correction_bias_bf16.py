"""Router correction bias, fp32 in the checkpoint, cast to bf16 with the rest of the trainer's model. It only enters the choice.
Expected moved: the bias in training only; the choice may flip, so the weights may."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["correction_bias"], moved_inference_only=[], discrete="topk may flip")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    bias = 4 + 0.02 * torch.randn(64, generator=g)
    return 0.05 * torch.randn(128, 64, generator=g), bias, bias.to(bf)


def _pick(logits, bias):
    s = logits.sigmoid()
    choice = s + bias
    i = torch.topk(choice, 8, dim=-1)[1]
    return choice, s.gather(1, i)


def inference(logits, bias, rounded):
    return _pick(logits, bias)


def training(logits, bias, rounded):
    return _pick(logits, rounded.float())


def aligned(rnd, logits, bias, rounded):
    return _pick(logits, rnd("correction_bias", bias))
