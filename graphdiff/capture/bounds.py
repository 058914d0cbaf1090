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


def check_layers(layers: Any) -> None:
    """Raises GraphdiffError for a number of layers that no model has. More than a config's own are fine: a small one may
    be made as deep as a big one."""
    if layers is None:
        return
    if isinstance(layers, bool) or not isinstance(layers, int) or not 1 <= layers <= MOST_LAYERS:
        raise GraphdiffError(f"models here have 1 to {MOST_LAYERS} layers", where=f"layers {_shown(layers)}", fix=f"give 1 to {MOST_LAYERS}")


def _shown(number: Any) -> str:
    text = repr(number) if not isinstance(number, int) or abs(number) < 10**30 else f"of {number.bit_length()} bits"
    return text[:60]
