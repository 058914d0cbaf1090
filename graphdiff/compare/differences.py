"""What differs between two captured models, in words: a message that names both alike helps nobody."""

from __future__ import annotations

from graphdiff.store import CaptureInfo

SHOWN = 4


def model_difference(inference: CaptureInfo, training: CaptureInfo) -> tuple[str, str]:
    """(what differs, what to do) for captures of models with different fingerprints."""
    one, two = inference.model, training.model
    if one.name != two.name:
        return f"{one.name} and {two.name}", "capture both sides from the same checkpoint (same name, layers and seed for synthetic ones)"
    if one.layers != two.layers:
        return f"{one.name} with {one.layers} and with {two.layers} layers", "capture both sides with the same --layers"
    keys = sorted(k for k in one.config.keys() | two.config.keys() if one.config.get(k) != two.config.get(k))
    if keys:
        more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
        shown = ", ".join(f"{k} {_short(one.config.get(k))} and {_short(two.config.get(k))}" for k in keys[:SHOWN])
        return f"{one.name}: {shown}{more}", "capture both sides from the same config"
    if inference.probe.seed != training.probe.seed:
        return f"{one.name} with --seed {inference.probe.seed} and {training.probe.seed}", "capture both sides with the same --seed"
    return (f"{one.name} with the same config and other weights",
            "capture both sides with the same --seed (made-up weights), or from the same checkpoint")


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
