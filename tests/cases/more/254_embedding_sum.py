"""Word, position and token-type embeddings summed: three bf16 additions in the trainer, one fp32 sum in the engine's kernel.
Expected moved: the sum of the first two in training only."""
import torch
import torch.nn.functional as F
bf = torch.bfloat16
EXPECT = dict(verdict="moved", moved_training_only=["word_plus_type"], moved_inference_only=[])


def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    mk = lambda n: torch.randn(n, 256, generator=g).to(bf)
    return torch.randint(0, 128, (4, 16), generator=g), torch.randint(0, 2, (4, 16), generator=g), mk(128), mk(2), mk(16)


def inference(ids, types, word, kind, place):
    return (word[ids].float() + kind[types].float() + place.float()).to(bf)


def training(ids, types, word, kind, place):
    x = F.embedding(ids, word) + F.embedding(types, kind)
    return x + place


def aligned(rnd, ids, types, word, kind, place):
    return (rnd("word_plus_type", word[ids].float() + kind[types].float()) + place.float()).to(bf)
