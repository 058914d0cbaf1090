"""The engine's raw capture as a program on a probe: real tensors to bits, FX positions to sites."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphdiff.capture.vllm.raw import RawEngineCapture, RawNode, RawPiece, Ref
from graphdiff.errors import GraphdiffError
from graphdiff.lower.inductor.context import SourcePosition
from graphdiff.lower.inductor.pieces import EnginePieces, GraphNode, Parameter, Piece, program_from_pieces
from graphdiff.program import Program

if TYPE_CHECKING:
    from graphdiff.capture.vllm.raw_native import RawNativePieces


def engine_program(raw: RawEngineCapture, tokens: list[int], positions: list[int],
                   bucket: str | int = "dynamic") -> tuple[Program, dict[int, np.ndarray]]:
    """Lower every piece in one shape bucket and wire them as the split graph does."""
    pieces = {name: _piece(piece_in(name, found, bucket)) for name, found in raw.pieces.items()}
    return program_from_pieces(wired(raw, pieces, tokens, positions))


def wired(raw: RawEngineCapture | RawNativePieces, pieces: dict[str, Any], tokens: list[int], positions: list[int]) -> EnginePieces:
    """The engine's split graph around `pieces`, its parameters as bits, and the probe."""
    from graphdiff.lower.aten import raw_bits

    parameters = {}
    for name, tensor in raw.parameters.items():
        if tensor.is_floating_point():
            contiguous = tensor.detach().cpu().contiguous()
            parameters[name] = Parameter(raw_bits(contiguous), str(tensor.dtype).removeprefix("torch."))
    inputs = {item.path: item for item in raw.inputs if item.kind == "input"}
    ids, places = _input(inputs, "input_ids"), _input(inputs, "positions")
    return EnginePieces(
        top=[_node(n) for n in raw.top], splitting={k: [_node(n) for n in v] for k, v in raw.splitting.items()}, pieces=pieces,
        parameters=parameters, token_ids=np.asarray(tokens), positions=np.asarray(positions),
        ids_name=ids.name, positions_name=places.name, ids_dtype=ids.dtype.removeprefix("torch."),
        positions_dtype=places.dtype.removeprefix("torch."),
        not_tuples=frozenset(name for name, is_tuple in raw.returns_tuple.items() if not is_tuple),
        handles=getattr(raw, "handles", {}))


def _input(inputs: dict, wanted: str):
    for path, item in inputs.items():
        if path.split(".")[-1] == wanted:
            return item
    raise GraphdiffError(f"the engine's graph has no input {wanted}", where=", ".join(inputs) or "it has none",
                         fix="only decoders that take token ids and positions are captured")


def piece_in(name: str, found: list[RawPiece], bucket: str | int) -> RawPiece:
    """The piece's code for one shape bucket. Raises GraphdiffError if it was not compiled for it."""
    for piece in found:
        if piece.bucket == bucket:
            return piece
    have = ", ".join(str(p.bucket) for p in found)
    raise GraphdiffError(f"piece {name} was not compiled for {bucket}", where=f"it has {have}", fix="name one of these")


def _piece(piece: RawPiece) -> Piece:
    code = piece.code
    sources = {name: SourcePosition(file=file, line=line) for name, (file, line) in code.sources.items()}
    results = [(o.kind, o.value if o.kind == "constant" else o.position) for o in code.outputs]
    return Piece(code.text, code.kernel_sources, sources, code.modules, results)


def _node(node: RawNode) -> GraphNode:
    return GraphNode(node.name, node.op, node.target, _plain(node.args), _plain(node.kwargs))


def _plain(value):
    if isinstance(value, Ref):
        return {"n": value.name}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value
