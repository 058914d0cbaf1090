"""Paths of source files that say the same on every machine."""

from __future__ import annotations

PACKAGES = ("vllm", "transformers", "torch")
"""Whose files are named from the package on, also where they run from a checkout."""
INSTALLED = ("site-packages", "dist-packages")


def package_path(file: str) -> str:
    """The path inside its package (`vllm/model_executor/models/qwen3.py`), wherever that is installed; others as they are."""
    parts = file.replace("\\", "/").split("/")
    for folder in INSTALLED:
        if folder in parts:
            return "/".join(parts[len(parts) - parts[::-1].index(folder):])
    if file.startswith("/"):
        for package in PACKAGES:
            if package in parts[:-1]:
                return "/".join(parts[len(parts) - 1 - parts[::-1].index(package):])
    return file


def short_file(file: str) -> str:
    """The path inside its package, else the file's own name: what a capture keeps."""
    inside = package_path(file)
    return inside if inside != file else file.replace("\\", "/").rsplit("/", 1)[-1]
