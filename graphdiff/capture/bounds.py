"""What numbers a capture takes, checked before anything is built from them."""

from __future__ import annotations

from typing import Any

from graphdiff.errors import GraphdiffError

LAST_SEED = 2**63 - 1
"""What torch's generators and a capture's header both hold."""
MOST_LAYERS = 1024


def check_seed(seed: Any) -> None:
    """Raises GraphdiffError for what is no seed."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= LAST_SEED:
        raise GraphdiffError("a seed is a whole number from 0 to 2**63 - 1", where=f"seed {_shown(seed)}", fix="give one in that range, such as 0")


def check_layers(layers: Any, own: Any = None, name: str = "") -> None:
    """Raises GraphdiffError for a number of layers that no model has, or more than `own`, those of the model's config."""
    if layers is None:
        return
    if isinstance(layers, bool) or not isinstance(layers, int) or layers < 1:
        raise GraphdiffError("a model has at least one layer", where=f"layers {_shown(layers)}", fix="give 1 or more")
    most, who = MOST_LAYERS, "models here have"
    if isinstance(own, int) and 0 < own < MOST_LAYERS:
        most, who = own, f"the config of {name} has"
    if layers > most:
        raise GraphdiffError(f"{who} {most} layer{'s' if most != 1 else ''} at most", where=f"layers {_shown(layers)}", fix=f"give 1 to {most}")


def _shown(number: Any) -> str:
    text = repr(number) if not isinstance(number, int) or abs(number) < 10**30 else f"of {number.bit_length()} bits"
    return text[:60]
