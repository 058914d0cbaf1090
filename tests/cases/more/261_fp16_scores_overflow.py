"""FP16 attention scores before the scale leave the format's range in eager code; the kernel scales in fp32.
Expected moved: scores and scaled scores, rounded to float16 (inf and NaN follow), in training only."""
import torch
h16 = torch.float16
EXPECT = dict(verdict="moved", moved_training_only=["scores", "scaled_scores"], moved_inference_only=[], dtype="float16", overflow=True, slack="GEMM order")


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, 32, 96, generator=g), torch.randn(2, 32, 96, generator=g)
    q[:, ::4], k[:, ::8] = 30 * q[:, ::4], 30 * k[:, ::8]
    q[:, 4, :8], k[:, 8, :8] = 200.0, 200.0
    return q.to(h16), k.to(h16)


def inference(q, k):
    return torch.softmax(q.float() @ k.float().transpose(1, 2) * 96 ** -0.5, -1).to(h16)


def training(q, k):
    return torch.softmax(torch.matmul(q, k.transpose(1, 2)) * 96 ** -0.5, -1, dtype=torch.float32).to(h16)


def aligned(rnd, q, k):
    s = rnd("scores", q.float() @ k.float().transpose(1, 2), h16)
    return torch.softmax(rnd("scaled_scores", s * 96 ** -0.5, h16), -1).to(h16)
