"""Where the rules lie: inside an installed package, or at the top of a checkout."""

from __future__ import annotations

from pathlib import Path

from graphdiff.errors import GraphdiffError


def rules_directory() -> Path:
    """The folder of rule files: `data` beside this module in a wheel, the checkout's `rules` in an editable install."""
    here = Path(__file__).resolve().parent
    for folder in (here / "data", here.parent.parent / "rules"):
        if folder.is_dir():
            return folder
    raise GraphdiffError(
        "the rules are missing from this installation", where=str(here), fix="install graphdiff-rl again"
    )
