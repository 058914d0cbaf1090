"""Which line and columns of whose source make the op that is being dispatched."""

from __future__ import annotations

import linecache
import sys
from functools import lru_cache
from types import CodeType
from typing import NamedTuple

from graphdiff.program.source_path import short_file


class Position(NamedTuple):
    """line and end_line 1-based, columns 0-based; all empty where nothing is known."""

    file: str = ""
    line: int = 0
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    text: str = ""


class Positions:
    """Finds the innermost frame that belongs to the model: first choice files with `prefer` in their path, else the
    innermost frame outside torch and graphdiff."""

    def __init__(self, prefer: tuple[str, ...] = ()) -> None:
        self.prefer = prefer

    def here(self) -> Position:
        frame = sys._getframe(1)
        fallback = None
        while frame is not None:
            name = frame.f_code.co_filename
            if any(p in name for p in self.prefer):
                return _position(frame.f_code, frame.f_lasti)
            if fallback is None and not _is_ours(name):
                fallback = (frame.f_code, frame.f_lasti)
            frame = frame.f_back
        return _position(*fallback) if fallback is not None and not self.prefer else Position()


@lru_cache(maxsize=4096)
def _is_ours(name: str) -> bool:
    # site-packages/torch, this package, the standard library's contextlib and functools wrappers, frozen modules
    return any(p in name for p in ("/torch/", "/graphdiff/", "/contextlib.py", "/functools.py", "/runpy.py", "/bin/graphdiff")) \
        or name.startswith("<")


@lru_cache(maxsize=65536)
def _at(code: CodeType, file: str, lasti: int) -> Position:
    # Two code objects are equal if they differ in nothing but their file (transformers copies whole classes from model
    # to model, sometimes to the same line): the file is part of the key.
    line, end_line, column, end_column = _table(code)[lasti // 2]
    source = linecache.getline(file, line or 0)
    text = source.encode()[column:end_column if end_line == line else None].decode(errors="replace") if column is not None else source
    return Position(short_file(file), line or 0, column or 0, end_line or 0, end_column or 0, text.strip()[:200])


def _position(code: CodeType, lasti: int) -> Position:
    return _at(code, code.co_filename, lasti)


@lru_cache(maxsize=1024)
def _table(code: CodeType) -> list:
    return list(code.co_positions())
