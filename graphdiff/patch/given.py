"""What a user gives `patch`: two captures and perhaps the report of their comparison, which must be of them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from graphdiff.errors import GraphdiffError
from graphdiff.report.model import Report, decode
from graphdiff.store import Capture


def given_report(path: Path, inference: Capture, training: Capture) -> Report:
    """The report at `path`, if it can be of these two captures. Raises GraphdiffError."""
    found = decode(_bytes(path), where=str(path))
    for side, capture in ((found.inference, inference), (found.training, training)):
        if (side.kind, side.model, side.versions) != (capture.header.kind, capture.header.model.name, dict(capture.header.versions)):
            raise GraphdiffError(f"this report is not of these captures: it has {side.kind} of {side.model}", where=str(path),
                                 fix="give the captures it was made from, inference first, or leave the report out")
    return found


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _bytes(path: Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise GraphdiffError(f"cannot read the report: {error.strerror}", where=str(path)) from error
