"""Where a patch may be written: a new folder, or an older patch, under a name that hides no other package."""

from __future__ import annotations

import importlib.util
import json
import keyword
import os
import sys
from pathlib import Path

from graphdiff.errors import GraphdiffError

GOOD = "use letters, digits and underscores, such as qwen3_rounding"


def check_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder, resolved. Raises GraphdiffError if it cannot be a package, or holds something that is no patch."""
    if not os.fspath(folder) or os.fspath(folder) == "-":
        raise GraphdiffError("a patch is a folder, and --output names none", fix="give a new folder, such as qwen3_rounding")
    path = Path(folder).resolve()
    if not path.name.isidentifier() or keyword.iskeyword(path.name):
        raise GraphdiffError("a patch is a Python package, and this is no name for one", where=str(path), fix=GOOD)
    if hidden := _hides(path):
        raise GraphdiffError(f"a package of this name would hide {hidden}", where=str(path), fix="give another name, such as qwen3_rounding")
    if os.path.lexists(path) and not path.is_dir() or _filled(path) and not _is_patch(path):
        raise GraphdiffError("this exists and is no patch", where=str(path), fix="give an empty or new folder")
    above = path
    while not os.path.lexists(above):
        above = above.parent
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise GraphdiffError(f"the patch cannot be written: {above} is no folder that can be written to", where=str(path), fix="give another --output")
    return path


def _filled(path: Path) -> bool:
    try:
        return path.is_dir() and any(path.iterdir())
    except OSError:
        return True


def _is_patch(path: Path) -> bool:
    """True for a folder with a manifest that `graphdiff patch` wrote."""
    try:
        manifest = json.loads((path / "manifest.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(manifest, dict) and {"graphdiff", "schema", "checksum"} <= manifest.keys()


def _hides(path: Path) -> str:
    """What `import NAME` means already, if that is not a patch: part of Python, or an installed package."""
    if path.name in sys.stdlib_module_names:
        return f"Python's {path.name}"
    try:
        spec = importlib.util.find_spec(path.name)
    except (ImportError, ValueError, AttributeError):
        return ""
    if spec is None or not spec.origin or spec.origin in ("built-in", "frozen"):
        return ""
    there = Path(spec.origin).resolve()
    own = there.name == "__init__.py" and (there.parent == path or _is_patch(there.parent))
    return "" if own else f"the module {path.name} ({there})"
