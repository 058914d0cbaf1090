"""residual_in_fp32 (Mamba-like stacks): the trainer keeps the stream in fp32 over two sub-layers, the engine stores it in bf16.
Expected moved: the stream after the first and after the second addition, in inference only."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=[], moved_inference_only=["stream_1", "stream_2"])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(32, 512, generator=g)).to(bf), torch.randn(32, 512, generator=g).to(bf), torch.randn(32, 512, generator=g).to(bf), (1 + 0.2 * torch.randn(512, generator=g)).to(bf)


def _norm(h, w):
    return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * w.float()).to(bf)


def inference(r, x, y, w):
    r = r + x
    a = _norm(r.float(), w)
    r = r + y
    return a, _norm(r.float(), w)


def training(r, x, y, w):
    r = r.float() + x
    a = _norm(r, w)
    r = r + y
    return a, _norm(r, w)


def aligned(rnd, r, x, y, w):
    r = rnd("stream_1", r.float() + x)
    a = _norm(r, w)
    return a, _norm(rnd("stream_2", r + y), w)
