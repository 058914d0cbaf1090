"""A patch package loaded from its folder: this runs its code, which is what `verify` is asked to do."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from graphdiff.errors import GraphdiffError


def load_package(folder: Path) -> tuple[ModuleType, dict[str, Any]]:
    """(the package, its manifest). Raises GraphdiffError if it is no patch or its manifest is damaged."""
    folder = folder.resolve()
    if not (folder / "manifest.json").is_file() or not (folder / "__init__.py").is_file():
        raise GraphdiffError("this folder is no patch: it has no manifest.json", where=str(folder), fix="give what `graphdiff patch` wrote")
    if not (folder / "apply.py").is_file():
        raise GraphdiffError("this package has kernels alone: nothing in it is applied", where=str(folder),
                             fix="its README.md says why, docs/patch.md how to write a recipe")
    name = f"_graphdiff_patch_{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    for known in [k for k in sys.modules if k == name or k.startswith(name + ".")]:
        del sys.modules[known]
    spec = importlib.util.spec_from_file_location(name, folder / "__init__.py", submodule_search_locations=[str(folder)])
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    try:
        spec.loader.exec_module(package)
        manifest = package.apply.__globals__["read_manifest"]()
    except Exception as error:
        raise GraphdiffError(f"the patch cannot be loaded: {' '.join(str(error).split())}", where=str(folder),
                             fix="generate it again with `graphdiff patch`") from error
    return package, manifest


def engine_options(manifest: dict[str, Any]) -> dict[str, Any]:
    """How the engine was captured that the patch was made for, as keywords of `pipeline.capture_vllm`."""
    made = manifest["captures"]["inference"]
    size, _, unit = made["shapes"].partition(" ")
    return {"target": made["target"], "tokens": made["tokens"], "mode": "eager" if made["mode"] == "eager" else "compiled",
            "bucket": int(size) if unit.startswith("token") else None, "graph_partition": made["mode"].endswith(", graph partition"),
            "inductor": [f"{name}={value}" for name, value in made.get("inductor", {}).items()]}


def edited_files(folder: Path, manifest: dict[str, Any]) -> list[str]:
    """Files that are not as they were generated."""
    def digest(name: str) -> str:
        file = folder / name
        return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "missing"

    return sorted(name for name, wanted in manifest["files"].items() if digest(name) != wanted)
