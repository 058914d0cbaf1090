"""Keeps stdout for the answer: engines print on it from Python, from C and from the processes they start."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator


def say_written(files: Iterable[str | os.PathLike[str]]) -> None:
    """Name the files that were written, on stderr: stdout may be the report. Pipes and devices are not named."""
    from graphdiff.paths import is_special

    for file in files:
        if not is_special(file):
            with contextlib.suppress(OSError, ValueError):
                print(f"wrote {os.fspath(file)}", file=sys.stderr)


@contextlib.contextmanager
def stdout_for_answer() -> Iterator[None]:
    """Within it, everything written to stdout goes to stderr; after it, stdout is stdout again.

    Done on the file descriptor, so that child processes and C libraries are covered. `--format json > report.json`
    then holds the report and nothing else.
    """
    try:
        sys.stdout.flush()
        saved = os.dup(1)
        os.dup2(2, 1)
    except (OSError, ValueError):  # stdout or stderr is closed: nothing to keep apart
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)
