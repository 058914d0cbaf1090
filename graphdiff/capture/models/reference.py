"""What a checkpoint is: its folder, its config, and a fingerprint that tells equal checkpoints from others."""

import hashlib
import json
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphdiff.errors import GraphdiffError

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth")
# Config entries that say where a checkpoint came from, how it is served or by which code it runs, not what it computes.
NOT_ARCHITECTURE = frozenset({"_name_or_path", "transformers_version", "auto_map", "use_cache", "initializer_range",
                              "attn_implementation", "experts_implementation"})
SAMPLED_BLOCKS = 64
BLOCK_BYTES = 4096
MAX_HEADER_BYTES = 64 << 20


@dataclass(frozen=True)
class ModelRef:
    """A checkpoint folder that vLLM and transformers load.

    `name` is what a person calls it, `synthetic` tells made-up weights from real ones, `layers` how many decoder
    layers it has, `fingerprint` is equal for equal checkpoints wherever they lie, `seed` what made-up weights come from.
    """

    name: str
    path: Path
    synthetic: bool
    layers: int
    fingerprint: str
    config: dict[str, Any] = field(repr=False)
    seed: int = 0


def reference(name: str, folder: Path, *, synthetic: bool) -> ModelRef:
    """The `ModelRef` of a checkpoint folder."""
    config = read_config(folder / "config.json")
    return ModelRef(
        name=name,
        path=folder,
        synthetic=synthetic,
        layers=layer_count(config),
        fingerprint=fingerprint(folder, config),
        config=config,
    )


def read_config(path: Path) -> dict[str, Any]:
    """A model config, as JSON; anything else is an error that names the file."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GraphdiffError(
            "this is no readable model config", where=str(path), fix=f"give a config.json of a model; {error}"
        ) from error
    if not isinstance(config, dict) or "model_type" not in config:
        raise GraphdiffError(
            "this JSON file is no model config: it has no `model_type`",
            where=str(path),
            fix="give the config.json of a transformers model",
        )
    return config


def layer_count(config: dict[str, Any]) -> int:
    """The number of decoder layers, of the text part where a config has several."""
    text = config.get("text_config")
    return int((text if isinstance(text, dict) else config).get("num_hidden_layers", 0))


def weight_files(folder: Path) -> list[Path]:
    """The weight files of a checkpoint folder, by name; safetensors alone where there are any, as loaders do."""
    files = sorted(p for p in folder.iterdir() if p.suffix in WEIGHT_SUFFIXES and p.is_file())
    return [p for p in files if p.suffix == ".safetensors"] or [p for p in files if p.name != "training_args.bin"]


def fingerprint(folder: Path, config: dict[str, Any]) -> str:
    """sha256 over the architecture, the tensors' names, shapes and types, and a sample of every weight file's bytes.

    The sample is bounded (`SAMPLED_BLOCKS` blocks a file, evenly spread), so a large checkpoint costs no more than
    a small one.
    """
    digest = hashlib.sha256()
    architecture = {key: value for key, value in config.items() if key not in NOT_ARCHITECTURE}
    digest.update(json.dumps(architecture, sort_keys=True).encode())
    for path in weight_files(folder):
        digest.update(f"\0{path.name}\0{path.stat().st_size}\0".encode())
        if path.suffix == ".safetensors":
            digest.update(json.dumps(_tensors(path), sort_keys=True).encode())
        _digest_sample(digest, path)
    return digest.hexdigest()


def _tensors(path: Path) -> dict[str, Any]:
    """Names, shapes and types of a safetensors file, from its header."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > MAX_HEADER_BYTES:
                raise ValueError("its header is larger than any real one")
            header = json.loads(file.read(length))
        return {name: [t["dtype"], t["shape"]] for name, t in header.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise GraphdiffError(
            "this is no safetensors file", where=str(path), fix=f"fetch the checkpoint again; {error}"
        ) from error


def _digest_sample(digest: "hashlib._Hash", path: Path) -> None:
    size = path.stat().st_size
    step = max(BLOCK_BYTES, size // SAMPLED_BLOCKS)
    with path.open("rb") as file:
        for start in range(0, size, step):
            file.seek(start)
            digest.update(file.read(BLOCK_BYTES))
        file.seek(max(0, size - BLOCK_BYTES), os.SEEK_SET)
        digest.update(file.read(BLOCK_BYTES))
