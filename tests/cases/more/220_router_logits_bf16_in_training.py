"""Router logits, mirrored: the engine runs its gate in fp32, the trainer in bf16, then softmax and top-k in fp32 on both sides.
Expected moved: router logits in training only; the choice may flip."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["router_logits"], moved_inference_only=[], discrete="topk may flip", slack="GEMM order")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 256, generator=g).to(bf), (256 ** -0.5 * torch.randn(32, 256, generator=g)).to(bf)


def _pick(logits):
    p = torch.softmax(logits, -1)
    w, i = torch.topk(p, 4, dim=-1)
    return w / w.sum(-1, keepdim=True), i


def inference(x, wg):
    return _pick(F.linear(x.float(), wg.float()))


def training(x, wg):
    return _pick(F.linear(x, wg).float())


def aligned(rnd, x, wg):
    return _pick(rnd("router_logits", F.linear(x.float(), wg.float())))
