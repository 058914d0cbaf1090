"""Models as both sides load them: a local checkpoint, or a synthetic one made from a config."""

from graphdiff.capture.models.reference import ModelRef, fingerprint
from graphdiff.capture.models.resolve import resolve_model, shipped_names

__all__ = ["ModelRef", "fingerprint", "resolve_model", "shipped_names"]
