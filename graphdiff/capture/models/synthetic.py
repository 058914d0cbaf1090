"""Checkpoints with made-up weights: real widths, few layers, the same bits on every machine.

Only widths, ops and dtypes decide where a stack rounds, so weights that nobody trained do as well as real ones, and
nothing has to be downloaded. Weights are sums of uniform numbers (integers from the generator, scaled): unlike
normal ones they use no `log` or `cos`, whose last bits differ between CPUs.
"""

import copy
import hashlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphdiff.capture.cache import cached_folder
from graphdiff.errors import GraphdiffError

if TYPE_CHECKING:
    import torch

RECIPE = 1  # raise it when the weights of the same config and seed would change
DEFAULT_LAYERS = 2
LARGEST_VOCABULARY = 1024
LARGEST_TINY_WIDTH = 512
# Lists in a config with one entry per layer.
PER_LAYER = ("layer_types",)
# Architectures whose class in vLLM has no lm_head of its own (model_executor/models/gemma2.py): they stay tied.
ALWAYS_TIED = ("gemma2",)


def synthetic_checkpoint(name: str, config: dict[str, Any], *, layers: int | None, seed: int) -> Path:
    """The folder of a checkpoint with this architecture, `layers` layers and weights made from `seed`."""
    reduced = reduced_config(config, DEFAULT_LAYERS if layers is None else layers)
    content = json.dumps([RECIPE, seed, reduced], sort_keys=True)
    key = hashlib.sha256(content.encode()).hexdigest()[:12]
    folder = f"{name}-{reduced['num_hidden_layers']}layers-seed{seed}-{key}"
    return cached_folder("models", folder, lambda draft: _write(draft, reduced, seed))


def reduced_config(config: dict[str, Any], layers: int) -> dict[str, Any]:
    """The config with fewer layers, a small vocabulary and untied embeddings; what decides rounding is untouched.

    Raises GraphdiffError for a config that no weights can be made up for.
    """
    if "num_hidden_layers" not in config:
        raise GraphdiffError(
            f"no weights can be made up for a {config.get('model_type')} model: its config has no `num_hidden_layers`",
            fix="give a checkpoint folder with weights",
        )
    if quantised := config.get("quantization_config"):
        raise GraphdiffError(
            f"this config asks for quantised weights ({quantised.get('quant_method', 'quantization_config')}), and weights "
            "that are made up are BF16: the engine would run other kernels",
            fix="give the quantised checkpoint itself, or leave quantization_config out of the config",
        )
    reduced = copy.deepcopy(config)
    reduced["num_hidden_layers"] = layers
    reduced["tie_word_embeddings"] = config.get("model_type") in ALWAYS_TIED
    reduced["dtype"] = "bfloat16"
    reduced.pop("torch_dtype", None)
    if "max_window_layers" in reduced:
        reduced["max_window_layers"] = layers
    for entry in PER_LAYER:
        if isinstance(reduced.get(entry), list):
            reduced[entry] = reduced[entry][:layers]
    _shrink_vocabulary(reduced)
    return reduced


def _shrink_vocabulary(config: dict[str, Any]) -> None:
    if config.get("vocab_size", 0) <= LARGEST_VOCABULARY:
        return
    config["vocab_size"] = LARGEST_VOCABULARY
    for position, token in enumerate(("pad_token_id", "bos_token_id", "eos_token_id")):
        if token in config:
            config[token] = position


def _write(folder: Path, config: dict[str, Any], seed: int) -> None:
    from safetensors.torch import save_file

    std = 0.05 if config.get("hidden_size", 0) <= LARGEST_TINY_WIDTH else 0.02
    shapes = _parameter_shapes(config)
    weights = {name: _weight(name, shapes[name], seed, std) for name in sorted(shapes)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _parameter_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the parameters, from the model built without memory."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    entries = {key: value for key, value in config.items() if key != "model_type"}
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(config["model_type"], **entries))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise GraphdiffError(
            f"transformers cannot build a {config['model_type']} causal language model from this config",
            fix=f"check the config; {error}",
        ) from error
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def _weight(name: str, shape: tuple[int, ...], seed: int, std: float) -> "torch.Tensor":
    """One parameter. Norm weights lie around 1, so that a norm's product with them is no identity."""
    import torch

    noise = _unit_noise(f"{seed}:{name}", shape)
    if "norm" in name and len(shape) == 1 and not name.endswith("bias"):
        values = noise.mul_(0.2).add_(1)
    elif name.endswith("bias"):
        values = noise.mul_(0.1)
    else:
        values = noise.mul_(std)
    return values.to(torch.bfloat16)


def _unit_noise(key: str, shape: tuple[int, ...]) -> "torch.Tensor":
    """Numbers with mean 0 and standard deviation 1, the same on every machine: the sum of two uniform ones."""
    import torch

    generator = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(key.encode()).digest()[:7], "big"))
    noise = torch.rand(shape, generator=generator)
    noise.add_(torch.rand(shape, generator=generator))
    return noise.sub_(1).mul_(math.sqrt(6))
