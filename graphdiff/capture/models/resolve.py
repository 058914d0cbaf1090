"""From what a person names (a folder, a config file, a shipped name) to a checkpoint on disk."""

from dataclasses import replace
from importlib import resources
from pathlib import Path

from graphdiff.capture.bounds import check_layers, check_seed
from graphdiff.capture.models.reference import ModelRef, read_config, reference, weight_files
from graphdiff.capture.models.synthetic import synthetic_checkpoint
from graphdiff.errors import GraphdiffError


def resolve_model(name_or_path: str, *, layers: int | None = None, seed: int = 0) -> ModelRef:
    """The checkpoint that `name_or_path` means.

    A local checkpoint folder is taken as it is. A folder or JSON file that holds only a config, and a name of
    `shipped_names()`, give a synthetic checkpoint: the real widths, `layers` decoder layers (2 if not told), weights
    from `seed`; made once and kept in the user's cache folder.
    """
    check_layers(layers)
    check_seed(seed)
    path = Path(name_or_path).expanduser()
    if path.exists():
        return _from_path(path.resolve(), layers, seed)
    shipped = _shipped().get(name_or_path.lower())
    if shipped is None:
        raise _unknown(name_or_path)
    return _synthetic(name_or_path.lower(), shipped, layers, seed)


def shipped_names() -> list[str]:
    """The names of the configs that graphdiff brings along."""
    return sorted(_shipped())


def _shipped() -> dict[str, Path]:
    folder = Path(str(resources.files("graphdiff.capture.models") / "configs"))
    return {path.stem: path for path in folder.glob("*.json")}


def _from_path(path: Path, layers: int | None, seed: int) -> ModelRef:
    if path.is_file():
        if path.suffix != ".json":
            raise GraphdiffError(
                "this file is no model", where=str(path), fix="give a checkpoint folder, or a config.json"
            )
        name = path.parent.name if path.name == "config.json" else path.stem
        return _synthetic(name, path, layers, seed)
    config = path / "config.json"
    if not config.is_file():
        raise GraphdiffError(
            "this folder is no model: it has no config.json",
            where=str(path),
            fix="give the folder of a transformers checkpoint",
        )
    if not weight_files(path):
        if (path / "model.safetensors.index.json").is_file():
            raise GraphdiffError(
                "this checkpoint has an index but no weights",
                where=str(path),
                fix="fetch its *.safetensors files, or give its config.json alone to use made-up weights",
            )
        return _synthetic(path.name, config, layers, seed)
    model = reference(path.name, path, synthetic=False)
    if layers not in (None, model.layers):
        raise GraphdiffError(
            f"this checkpoint has {model.layers} layers and cannot be cut to {layers}",
            where=str(path),
            fix=f"leave the number of layers out, or give {config} for made-up weights in {layers} layers",
        )
    return model


def _synthetic(name: str, config_file: Path, layers: int | None, seed: int) -> ModelRef:
    config = read_config(config_file)
    folder = synthetic_checkpoint(name, config, layers=layers, seed=seed)
    return replace(reference(name, folder, synthetic=True), seed=seed)


def _unknown(name: str) -> GraphdiffError:
    names = ", ".join(shipped_names())
    if "/" not in name:
        return GraphdiffError(f"unknown model {name!r}", where="neither a file or folder here nor a shipped name",
                              fix=f"give a checkpoint folder, a config.json, or one of {names}")
    last = name.rsplit("/", 1)[-1].lower()
    close = next((shipped for shipped in shipped_names() if shipped == last), None)
    here = f"; {close} is its config, shipped, with made-up weights" if close else f"; shipped are configs with made-up weights: {names}"
    return GraphdiffError(f"no model {name!r} here", where="names of the Hugging Face hub are not fetched",
                          fix=f"download the checkpoint and give its folder{here}")
