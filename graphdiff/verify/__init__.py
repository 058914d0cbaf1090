"""The proof of a patch: applied, captured again, compared again; bits; gradients; taken off again."""

from graphdiff.verify.model import Check, Verification
from graphdiff.verify.run import verify_patch

__all__ = ["Check", "Verification", "verify_patch"]
