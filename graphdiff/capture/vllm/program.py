"""The engine's raw capture as a program on a probe: real tensors to bits, FX positions to sites."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphdiff.capture.vllm.raw import RawEngineCapture, RawInput, RawNode, RawPiece, Ref
from graphdiff.errors import GraphdiffError
from graphdiff.lower.inductor.context import SourcePosition
from graphdiff.lower.inductor.pieces import EnginePieces, GraphNode, Parameter, Piece, integers, program_from_pieces
from graphdiff.lower.inductor.values import Tensor
from graphdiff.program import Program

if TYPE_CHECKING:
    from graphdiff.capture.vllm.raw_native import RawNativePieces

POSITIONS = ("positions", "position_ids")


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
    handles = getattr(raw, "handles", {})
    probe = {item.name: probe_input(item, tokens, positions) for item in raw.inputs if item.kind == "input" and item.name not in handles}
    return EnginePieces(
        top=[_node(n) for n in raw.top], splitting={k: [_node(n) for n in v] for k, v in raw.splitting.items()}, pieces=pieces,
        parameters=parameters, probe=probe, tokens=len(tokens),
        not_tuples=frozenset(name for name, is_tuple in raw.returns_tuple.items() if not is_tuple),
        handles=handles, attention=raw.attention, others={i.name: i.value for i in raw.inputs if i.kind == "other"})


def probe_input(item: RawInput, tokens: list[int], positions: list[int]) -> Tensor:
    """What the probe gives for an input of the engine's graph, in its shape: [tokens], or [1, tokens] where vLLM runs a
    model of transformers. Raises GraphdiffError for an input that is neither token ids nor positions."""
    last = item.path.split(".")[-1]
    if last not in ("input_ids", *POSITIONS):
        raise GraphdiffError(f"the engine's graph has an input {item.path or item.name}", where=item.source or item.name,
                             fix="only decoders that take token ids and positions are captured")
    values = np.asarray(tokens if last == "input_ids" else positions)
    shape = tuple(n if isinstance(n, int) else -1 for n in item.shape) or (-1,)
    return integers(values.reshape(shape if -1 in shape else values.shape), item.dtype.removeprefix("torch."), dynamic=last == "input_ids")


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
