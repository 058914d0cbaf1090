"""Emitted packages, imported here (their plain torch path) or run in the repaired interpreter (graphdiff.verify)."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from graphdiff.verify.interpreter import Answer, Call, call, run_in_interpreter, write_package

__all__ = ["Answer", "Call", "call", "load_package", "run_in_interpreter", "write_package"]


def load_package(files: dict[str, str], folder: Path, name: str) -> Any:
    """The package imported in this process: its plain torch path."""
    write_package(files, folder, name)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
