"""An engine graph in pieces of native code: wired as CUDA's are, each piece run as C++ code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphdiff.lower.inductor.context import Context, SourcePosition
from graphdiff.lower.inductor.pieces import EnginePieces, Wiring
from graphdiff.lower.inductor_cpp.extern import Handlers
from graphdiff.lower.inductor_cpp.kernel_data import CppCode
from graphdiff.lower.inductor_cpp.wrapper import CppCall
from graphdiff.program.builder import Builder
from graphdiff.program.types import Program


@dataclass(frozen=True)
class CppPiece:
    """Native code of one piece; sources, modules and results as in `Piece`."""

    code: CppCode
    sources: Mapping[str, SourcePosition] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    results: Sequence[tuple[str, Any]] | None = None


class CppWiring(Wiring):
    """`Wiring` of pieces that are `CppPiece`s; `handlers` lower the engine's own ops inside them."""

    def __init__(self, builder: Builder, engine: EnginePieces, handlers: Handlers) -> None:
        super().__init__(builder, engine)
        self.handlers = handlers

    def call(self, ctx: Context, name: str, piece: CppPiece) -> CppCall:
        return CppCall(ctx, piece.code, name, self.handlers)


def program_from_cpp_pieces(engine: EnginePieces, handlers_for: Callable[[Builder], Handlers]) -> tuple[Program, dict[int, np.ndarray]]:
    """The engine's program on the probe and its leaves' bits, as `program_from_pieces`."""
    builder = Builder()
    return CppWiring(builder, engine, handlers_for(builder)).program()
