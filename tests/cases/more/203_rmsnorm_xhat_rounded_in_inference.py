"""RMSNorm with weight, mirrored: the engine rounds the normalised value before the weight (llama casting), the trainer multiplies in fp32 (gemma casting without the offset).
Expected moved: xhat in inference only."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=[], moved_inference_only=["xhat"])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(2, 32, 1024, generator=g).to(bf), (0.5 + torch.rand(1024, generator=g)).to(bf)


def inference(x, w):
    return F.rms_norm(x.float(), (x.shape[-1],), eps=1e-6).to(bf) * w


def training(x, w):
    h = x.float()
    return (w.float() * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6))).to(bf)


def aligned(rnd, x, w):
    h = x.float()
    return (w.float() * rnd("xhat", h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6))).to(bf)
