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
            "torch is not installed", where="compiled code", fix="pip install 'graphdiff-rl[torch]'"
        ) from error
    name = MODULES.get(".".join(version.split(".")[:2]))
    if name is None:
        supported = ", ".join(MODULES)
        raise GraphdiffError(
            f"compiled code of torch {version} is not known here",
            where=f"supported: torch {supported}",
            fix="install one of them, or use `graphdiff capture dumps --any-torch` on its TORCH_TRACE",
        )
    return importlib.import_module(f"graphdiff.capture.inductor.{name}")
