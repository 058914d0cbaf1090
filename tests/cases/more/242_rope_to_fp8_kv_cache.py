"""Key rotated and stored in an e4m3 cache: one kernel rotates in fp32 and quantises; the trainer's simulation rotates in bf16 first.
Expected moved: k*cos, rot(k)*sin and the rotated key in training only; the e4m3 rounding is shared."""
import torch
bf, f8 = torch.bfloat16, torch.float8_e4m3fn
EXPECT = dict(verdict="moved", moved_training_only=["k_cos", "k_rot_sin", "k_rotated"], moved_inference_only=[], out_dtype="float8_e4m3fn as float32")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    ang = torch.outer(torch.arange(128).float() + 11, 1e4 ** (-torch.arange(0, 64, 2).float() / 64))
    return torch.randn(128, 8, 64, generator=g).to(bf), ang.cos().to(bf)[:, None], ang.sin().to(bf)[:, None]


def inference(k, c, s):
    a, b = k.float().chunk(2, -1)
    c, s = c.float(), s.float()
    return (torch.cat((a * c - b * s, b * c + a * s), -1) / 0.037).clamp(-448, 448).to(f8).float()


def training(k, c, s):
    c, s = torch.cat((c, c), -1), torch.cat((s, s), -1)
    k = k * c + torch.cat((-k[..., 32:], k[..., :32]), -1) * s
    return (k.float() / 0.037).clamp(-448, 448).to(f8).float()


def aligned(rnd, k, c, s):
    c, s = torch.cat((c, c), -1).float(), torch.cat((s, s), -1).float()
    x = k.float()
    y = rnd("k_cos", x * c) + rnd("k_rot_sin", torch.cat((-x[..., 32:], x[..., :32]), -1) * s)
    return (rnd("k_rotated", y) / 0.037).clamp(-448, 448).to(f8).float()
