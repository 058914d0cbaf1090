"""The tiny model that the patch tests change, and what they ask of it."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CAPTURES = tuple(ROOT / "fixtures" / "cuda-90" / "qwen3-tiny" / f"{side}.capture" for side in ("vllm", "transformers"))
ALL = {"rope": True, "swiglu": True, "residual_rmsnorm": True}


def tiny(name="qwen3-tiny", attn="sdpa"):
    from graphdiff.capture.models import resolve_model
    from graphdiff.capture.transformers import load_model

    return load_model(resolve_model(name), attn=attn, autocast=None)


def forwards(model):
    """What every module runs, by identity."""
    return {name: (id(m), m.__dict__.get("forward"), type(m).forward) for name, m in model.named_modules()}


def loss_of(model, ids, **options):
    import torch

    logits = model(input_ids=ids, use_cache=False, **options).logits.float()
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def tokens(batch=2, length=12, seed=0):
    import torch

    return torch.randint(0, 500, (batch, length), generator=torch.Generator().manual_seed(seed))
