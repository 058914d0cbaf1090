"""A block where each side rounds what the other does not: the engine stores the residual sum before the norm, the trainer rounds xhat before the weight.
Expected moved: xhat in training only, the residual sum the norm reads in inference only."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["xhat"], moved_inference_only=["residual_sum_seen_by_norm"])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 512, generator=g).to(bf), (2 * torch.randn(32, 512, generator=g)).to(bf), (1 + 0.3 * torch.randn(512, generator=g)).to(bf)


def _xhat(h):
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)


def inference(x, r, w):
    return (_xhat((x + r).float()) * w.float()).to(bf)


def training(x, r, w):
    return w * _xhat(x.float() + r.float()).to(bf)


def aligned(rnd, x, r, w):
    s = rnd("residual_sum_seen_by_norm", x.float() + r.float())
    return (rnd("xhat", _xhat(s)) * w.float()).to(bf)
