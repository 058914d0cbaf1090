"""What is going on, on stderr of a terminal; silent in a pipe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

Progress = Callable[[str], None]
"""Called with what is being done now, in a few words."""


@contextlib.contextmanager
def progress(start: str = "starting") -> Iterator[Progress]:
    """A line with a spinner that says the last words given; nothing at all when stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda words: None
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(escape(start)) as status:
        yield lambda words: status.update(escape(words))
