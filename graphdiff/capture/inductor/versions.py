"""The module that knows the private API of the installed torch."""

import importlib
import importlib.metadata
from types import ModuleType

from graphdiff.errors import GraphdiffError

MODULES = {"2.13": "torch_2_13", "2.14": "torch_2_14"}


def backend() -> ModuleType:
    """The module for the installed torch; an error that names the supported versions if there is none."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError as error:
        raise GraphdiffError(
            "torch is not installed", where="CUDA code with no GPU", fix="pip install 'graphdiff-rl[torch]'"
        ) from error
    name = MODULES.get(".".join(version.split(".")[:2]))
    if name is None:
        supported = ", ".join(MODULES)
        raise GraphdiffError(
            f"CUDA code with no GPU is not known to work with torch {version}",
            where=f"supported: torch {supported}",
            fix=f"install torch {supported}, or capture for the target cpu",
        )
    return importlib.import_module(f"graphdiff.capture.inductor.{name}")
