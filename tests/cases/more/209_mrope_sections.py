"""Multimodal RoPE (Qwen2-VL): the table picks its lanes from three position axes by section; the engine's kernel rotates in fp32, the trainer in bf16.
Expected moved: q*cos and rot(q)*sin in training only; choosing sections rounds nothing."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["q_cos", "q_rot_sin"], moved_inference_only=[])
SECTIONS = (16, 24, 24)


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    pos = torch.randint(0, 40, (3, 40), generator=g).float()
    ang = pos[..., None] * 1e6 ** (-torch.arange(0, 128, 2).float() / 128)
    return torch.randn(4, 40, 128, generator=g).to(bf), ang.cos().to(bf), ang.sin().to(bf)


def inference(q, cos, sin):
    c = torch.cat([p[i] for i, p in enumerate(cos.split(SECTIONS, -1))], -1).float()
    s = torch.cat([p[i] for i, p in enumerate(sin.split(SECTIONS, -1))], -1).float()
    a, b = q.float().chunk(2, -1)
    return torch.cat((a * c - b * s, b * c + a * s), -1).to(bf)


def training(q, cos, sin):
    cos, sin = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
    c = torch.cat([p[i % 3] for i, p in enumerate(cos.split(SECTIONS * 2, -1))], -1)
    s = torch.cat([p[i % 3] for i, p in enumerate(sin.split(SECTIONS * 2, -1))], -1)
    return q * c + torch.cat((-q[..., 64:], q[..., :64]), -1) * s


def aligned(rnd, q, cos, sin):
    cos, sin = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
    c = torch.cat([p[i % 3] for i, p in enumerate(cos.split(SECTIONS * 2, -1))], -1).float()
    s = torch.cat([p[i % 3] for i, p in enumerate(sin.split(SECTIONS * 2, -1))], -1).float()
    x = q.float()
    return (rnd("q_cos", x * c) + rnd("q_rot_sin", torch.cat((-x[..., 64:], x[..., :64]), -1) * s)).to(bf)
