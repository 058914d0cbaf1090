"""The code is built as docs/architecture.md says: imports go one way, heavy libraries stay where they belong."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "graphdiff"
FILES = sorted(PACKAGE.rglob("*.py"))
LONGEST = 400

UP = {("capture/vllm/finish.py", "record")}
"""The imports that go up, as the document says."""

HEAVY = {
    "torch": ("capture/", "lower/aten/", "emit/torch_reference.py", "hardware/helpers_torch_2_13.py", "patch/", "verify/"),
    "transformers": ("capture/", "patch/", "verify/"),
    "safetensors": ("capture/", "verify/"),
    "vllm": ("capture/vllm/", "verify/"),
    "triton": ("capture/inductor/", "hardware/compile.py", "patch/", "verify/"),
    "typer": ("cli/",),
    "rich": ("report/", "cli/"),
}
"""Where a library may be imported, at the top or late."""

STILL_LONG: dict[str, int] = {}
"""Modules above LONGEST, with what they may not exceed."""


def table() -> dict[str, set[str]]:
    """folder -> what it may import, in the order of the document."""
    rows = re.findall(r"^\| `(\w+)(?:/|\.py)` \|.*\| ([^|]+) \|$", (ROOT / "docs" / "architecture.md").read_text(), re.M)
    allowed: dict[str, set[str]] = {}
    for name, may in rows:
        words = set() if may == "nothing" else set(allowed) if may == "all above" else set(re.split(r",\s*", may.strip()))
        allowed[name] = words
    return allowed


def place(file: Path) -> str:
    return file.relative_to(PACKAGE).as_posix()


def imports(file: Path) -> list[tuple[str, str | None]]:
    """(module, name) of every import statement, late ones included."""
    found: list[tuple[str, str | None]] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found += [(a.name, None) for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{place(file)}: imports are absolute"
            found += [(node.module or "", a.name) for a in node.names]
    return found


def floors(module: str, name: str | None) -> str | None:
    """The folder of graphdiff that an import names; None for other libraries and the version."""
    parts = module.split(".")
    if parts[0] != "graphdiff":
        return None
    if len(parts) > 1:
        return parts[1]
    return None if name in (None, "__version__") else name


def test_the_table_names_every_folder_once_and_goes_one_way():
    allowed = table()
    there = {p.name for p in PACKAGE.iterdir() if p.is_dir() and any(p.glob("*.py"))} | {"errors", "pipeline"}
    assert set(allowed) == there
    order = list(allowed)
    for name, may in allowed.items():
        assert may <= set(order[: order.index(name)]), f"{name} may not import what stands below it"


@pytest.mark.parametrize("file", FILES, ids=place)
def test_imports(file):
    own = place(file).split("/")[0].removesuffix(".py")
    if own in ("__init__", "__main__"):
        return
    allowed = table()[own] | {own}
    for module, name in imports(file):
        floor = floors(module, name)
        assert floor is None or floor in allowed or (place(file), floor) in UP, f"{place(file)} imports {module}"
        library = module.split(".")[0]
        if library in HEAVY:
            assert place(file).startswith(HEAVY[library]), f"{place(file)} imports {library}"
        private = module.startswith("graphdiff.") and name is not None and name.startswith("_") and not name.startswith("__")
        assert not private, f"{place(file)} imports the private {module}.{name}"


@pytest.mark.parametrize("file", FILES, ids=place)
def test_modules_are_short(file):
    assert len(file.read_text().splitlines()) <= STILL_LONG.get(place(file), LONGEST)


def test_private_api_sits_in_modules_named_after_a_version():
    for file in FILES:
        private = [m for m, _ in imports(file) if re.match(r"(torch|vllm)\..*\b_\w+|torch\._|vllm\._", m)]
        if private and not re.search(r"_\d+_\d+", file.name):
            assert set(private) <= PUBLIC_ENOUGH, f"{place(file)} imports {private}"


PUBLIC_ENOUGH = {"torch.utils._pytree", "torch.utils._python_dispatch"}
"""Private by name and documented for use outside torch."""
