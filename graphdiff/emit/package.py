"""The text of a self-contained kernels package: torch and triton only, one readable file per kind of region.

Equal regions give equal bytes.
"""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from graphdiff import __version__
from graphdiff.emit.signature import DESCRIPTIONS, TITLES, EmittedRegion
from graphdiff.emit.triton_source import wrap
from graphdiff.errors import GraphdiffError


def emit_package(regions: Iterable[EmittedRegion]) -> dict[str, str]:
    """path -> text. The same regions in any order give the same bytes; equal regions (of several layers) are written
    once, with all the engine's kernels they mirror."""
    kinds: dict[str, dict[str, EmittedRegion]] = {}
    mirrored: dict[tuple[str, str], set[str]] = {}
    for r in sorted(regions, key=lambda r: (r.name, r.text)):
        mirrored.setdefault((r.name, r.meta["engine"]), set()).update(kernel for _, kernel in r.meta["kernels"])
        known = kinds.setdefault(r.module, {})
        if r.name in known and known[r.name].meta["fingerprint"] != r.meta["fingerprint"]:
            raise GraphdiffError(f"two different regions are called {r.name}", where=", ".join(r.meta["modules"]), fix="emit them in packages of their own")
        known.setdefault(r.name, r)
    header = f"Written by graphdiff {__version__}. Made for one model; widths are constants here."
    files = {"_common.py": _template("common.py.j2").render(header=header)}
    exports = []
    for module in sorted(kinds):
        found = [kinds[module][n] for n in sorted(kinds[module])]
        mirrors = [textwrap.fill(f"{r.name} mirrors {', '.join(sorted(kernels))} of {engine}.", 116, break_long_words=False)
                   for r in found for (name, engine), kernels in sorted(mirrored.items()) if name == r.name]
        files[f"{module}.py"] = _tidy(_template("region.py.j2").render(
            title=TITLES[module], description=DESCRIPTIONS[module], header="\n".join([*mirrors, header]), regions=found))
        exports.append((module, [r.name for r in found]))
    files["__init__.py"] = _template("init.py.j2").render(header=header, exports=exports)
    return {path: files[path].rstrip() + "\n" for path in sorted(files)}


@cache
def _template(name: str):
    import jinja2

    folder = Path(__file__).parent / "templates"
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(folder), autoescape=False, undefined=jinja2.StrictUndefined,
                                     keep_trailing_newline=True)
    return environment.get_template(name)


def _tidy(text: str) -> str:
    """Only the imports that are used; two blank lines at most."""
    start, end = text.index("from ._common import ("), text.index(")\n", text.index("from ._common import (")) + 2
    names = [n.strip() for n in text[text.index("(", start) + 1:end - 2].replace("\n", " ").split(",")]
    used = [n for n in names if any(c in text[end:] for c in (f"{n}(", f"{n}.", f"@{n}"))]
    joined = wrap(f"from ._common import {', '.join(used)}", 110)
    if "\n" in joined:
        lines = joined.splitlines()
        joined = lines[0].replace("import ", "import (\n    ") + "".join("\n    " + line.strip() for line in lines[1:]) + ")"
    text = text[:start] + joined + "\n" + text[end:]
    while "\n\n\n\n" in text:
        text = text.replace("\n\n\n\n", "\n\n\n")
    return text


def package_digest(files: Mapping[str, str]) -> str:
    """sha256 over paths and texts."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path}\0{files[path]}\0".encode())
    return digest.hexdigest()
