"""The engine reads one merged bf16 cache [cos | sin] by position, the trainer computes fp32 cos and sin per token; rotation in fp32 on both.
Expected moved: cos and sin in inference only: two values, though one buffer holds both."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=[], moved_inference_only=["cos_table", "sin_table"])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    inv = 1e4 ** (-torch.arange(0, 64, 2).float() / 64)
    ang = torch.outer(torch.arange(96).float(), inv)
    return torch.randn(32, 4, 64, generator=g).to(bf), torch.randint(3, 96, (32,), generator=g), torch.cat((ang.cos(), ang.sin()), -1).to(bf), inv


def _rotate(q, c, s):
    a, b = q.float().chunk(2, -1)
    return torch.cat((a * c - b * s, b * c + a * s), -1).to(bf)


def inference(q, pos, cache, inv):
    c, s = cache[pos].float()[:, None].chunk(2, -1)
    return _rotate(q, c, s)


def training(q, pos, cache, inv):
    ang = (pos.float()[:, None] * inv)[:, None]
    return _rotate(q, ang.cos(), ang.sin())


def aligned(rnd, q, pos, cache, inv):
    ang = (pos.float()[:, None] * inv)[:, None]
    return _rotate(q, rnd("cos_table", ang.cos()), rnd("sin_table", ang.sin()))
