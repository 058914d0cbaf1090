"""Expert outputs combined by pairs: the engine sums two ranks' bf16 partial results (an all-reduce), the trainer all four in fp32.
Expected moved: the partial sum of experts 0 and 1 and that of experts 2 and 3 in inference only."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=[], moved_inference_only=["rank_0_sum", "rank_1_sum"])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(32, 4, 256, generator=g).to(bf), torch.rand(32, 4, generator=g).to(bf)


def inference(y, w):
    t = y.float() * w.float()[..., None]
    return (t[:, 0] + t[:, 1]).to(bf) + (t[:, 2] + t[:, 3]).to(bf)


def training(y, w):
    t = y.float() * w.float()[..., None]
    return ((t[:, 0] + t[:, 1]) + (t[:, 2] + t[:, 3])).to(bf)


def aligned(rnd, y, w):
    t = y.float() * w.float()[..., None]
    return (rnd("rank_0_sum", t[:, 0] + t[:, 1]) + rnd("rank_1_sum", t[:, 2] + t[:, 3])).to(bf)
