"""The engine's two-kernel RMSNorm passes the reciprocal root through a bf16 buffer (an error shared by the whole row); the trainer keeps it in fp32.
Expected moved: rstd in inference only."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=[], moved_inference_only=["rstd"])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(64, 512, generator=g).to(bf), (1 + 0.3 * torch.randn(512, generator=g)).to(bf)


def inference(x, w):
    h = x.float()
    rstd = torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6).to(bf)
    return (h * rstd * w).to(bf)


def training(x, w):
    h = x.float()
    return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * w).to(bf)


def aligned(rnd, x, w):
    h = x.float()
    return (h * rnd("rstd", torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)) * w).to(bf)
