"""Where evaluation stands: the kernel and line that errors name and that new nodes get as their Site."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from graphdiff.errors import GraphdiffError
from graphdiff.lower.inductor.engine_attention import AttentionLayer
from graphdiff.program.builder import Builder
from graphdiff.program.source_path import short_file
from graphdiff.program.types import Site


class SourcePosition(msgspec.Struct, frozen=True):
    """Where an FX node was written: file, 1-based lines, 0-based columns, the text there."""

    file: str = ""
    line: int = 0
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    text: str = ""


@dataclass
class Context:
    """The builder, the piece being read, and the place in it."""

    builder: Builder
    code: str = ""
    """Name of the output code (a piece)."""
    sources: Mapping[str, SourcePosition] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    kernel: str = ""
    origin: tuple[str, ...] = ()
    line: int = 0
    attention: Mapping[str, AttentionLayer] | None = None
    """The engine's layers by name; None where nobody told of them."""

    def enter(self, kernel: str, origin: tuple[str, ...], line: int) -> None:
        """What follows happens in this kernel (or extern kernel)."""
        self.kernel, self.origin, self.line = kernel, origin, line

    def at(self, line: int, name: str = "", origin: tuple[str, ...] = ()) -> None:
        """Nodes made from here on come from this line and are called `name`."""
        self.line = line
        origin = origin or self.origin
        source = next((self.sources[n] for n in reversed(origin) if n in self.sources), SourcePosition())
        module = next((self.modules[n] for n in reversed(origin) if n in self.modules), "")
        self.builder.site = Site(
            kernel=self.kernel, name=name, origin=origin, module=module, file=short_file(source.file), line=source.line,
            column=source.column, end_line=source.end_line, end_column=source.end_column, text=source.text,
            code=self.code, code_line=line)

    @property
    def where(self) -> str:
        piece = f", {self.code}" if self.code else ""
        return (f"kernel {self.kernel} line {self.line}" if self.kernel else f"call() line {self.line}") + piece

    def unsupported(self, construct: str) -> GraphdiffError:
        return GraphdiffError(f"no lowering for {construct}", where=self.where,
                              fix="report it with the output code, so that it can be added")

    @contextmanager
    def following(self, statement: ast.stmt) -> Iterator[None]:
        """What goes wrong inside is said with the statement and its place (text nobody foresaw, never a traceback)."""
        try:
            yield
        except (ValueError, TypeError, AttributeError, KeyError, IndexError, ArithmeticError) as error:
            text = ast.unparse(statement).splitlines()[0][:100]
            raise self.broken(f"cannot follow `{text}`: {type(error).__name__}: {error}") from error

    def broken(self, what: str) -> GraphdiffError:
        return GraphdiffError(what, where=self.where)
