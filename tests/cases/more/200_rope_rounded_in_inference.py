"""RoPE on q and k, mirrored: a custom op rotates in bf16 op by op, the trainer's fused rotary kernel in fp32.
Stands for reports that a hand-written rotary kernel computes in the tensor's dtype while the reference upcasts.
Expected moved: q*cos, rot(q)*sin, k*cos, rot(k)*sin in inference only."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=[], moved_inference_only=["q_cos", "q_rot_sin", "k_cos", "k_rot_sin"])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    ang = torch.outer(torch.arange(48).float() + 9, 1e4 ** (-torch.arange(0, 64, 2).float() / 64))
    return torch.randn(48, 8, 64, generator=g).to(bf), torch.randn(48, 2, 64, generator=g).to(bf), ang.cos().to(bf)[:, None], ang.sin().to(bf)[:, None]


def _rotate(x, c, s):
    a, b = x.chunk(2, -1)
    return torch.cat((a * c - b * s, b * c + a * s), -1)


def inference(q, k, c, s):
    return _rotate(q, c, s), _rotate(k, c, s)


def training(q, k, c, s):
    c, s = torch.cat((c, c), -1).float(), torch.cat((s, s), -1).float()
    def rotate(x):
        h = x.shape[-1] // 2
        x = x.float()
        return (x * c + torch.cat((-x[..., h:], x[..., :h]), -1) * s).to(bf)
    return rotate(q), rotate(k)


def aligned(rnd, q, k, c, s):
    c, s = torch.cat((c, c), -1).float(), torch.cat((s, s), -1).float()
    def rotate(n, x):
        x = x.float()
        a, b = x.chunk(2, -1)
        return (rnd(n + "_cos", x * c) + rnd(n + "_rot_sin", torch.cat((-b, a), -1) * s)).to(bf)
    return rotate("q", q), rotate("k", k)
