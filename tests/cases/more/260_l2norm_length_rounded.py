"""L2 normalisation of q and k (linear attention): eager divides by a length stored in bf16, the kernel keeps it in fp32.
Expected moved: the length in training only."""
import torch
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["length"], moved_inference_only=[])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return (torch.randn(64, 4, 64, generator=g).to(bf),)


def inference(q):
    x = q.float()
    return (x / torch.sqrt((x * x).sum(-1, keepdim=True))).to(bf)


def training(q):
    return q / torch.linalg.vector_norm(q, dim=-1, keepdim=True)


def aligned(rnd, q):
    x = q.float()
    return (x / rnd("length", torch.sqrt((x * x).sum(-1, keepdim=True)))).to(bf)
