"""DeepNorm (post-norm, LayerNorm(alpha * x + f)): the trainer forms alpha*x and the sum in bf16, the engine in fp32 inside the norm's kernel.
Expected moved: alpha*x and the sum in training only."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["alpha_x", "sum"], moved_inference_only=[])
ALPHA = 2.6321


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(64, 512, generator=g).to(bf) for _ in range(2)) + ((1 + 0.2 * torch.randn(512, generator=g)).to(bf), torch.randn(512, generator=g).to(bf))


def inference(x, f, w, b):
    return F.layer_norm(x.float() * ALPHA + f.float(), (512,), w.float(), b.float()).to(bf)


def training(x, f, w, b):
    return F.layer_norm((x * ALPHA + f).float(), (512,), w.float(), b.float()).to(bf)


def aligned(rnd, x, f, w, b):
    return F.layer_norm(rnd("sum", rnd("alpha_x", x.float() * ALPHA) + f.float()), (512,), w.float(), b.float()).to(bf)
