"""A native engine as a program on a probe: its compiled graph or pieces lowered, or its model recorded while it runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdiff.capture.vllm.program import probe_input, wired
from graphdiff.capture.vllm.raw_native import RawNative, RawNativeCompiled, RawNativeEager, RawNativePieces
from graphdiff.lower.inductor_cpp.wrapper import Observer
from graphdiff.program import Builder, Program


def native_program(raw: RawNative, tokens: list[int], positions: list[int]) -> tuple[Program, dict[int, np.ndarray], list[str]]:
    """The engine's program, its leaves' bits, and notes on what was met (opaque ops)."""
    if isinstance(raw, RawNativeEager):
        return _recorded(raw, tokens, positions)
    if isinstance(raw, RawNativePieces):
        return *_in_pieces(raw, tokens, positions), []
    return *compiled_program(raw, tokens, positions), []


# ---- compiled


def compiled_program(raw: RawNativeCompiled, tokens: list[int], positions: list[int],
                     observe: Observer | None = None) -> tuple[Program, dict[int, np.ndarray]]:
    """Lower the whole graph; outputs `hidden_states`, `output_1` ..."""
    from graphdiff.capture.vllm.native_ops import handlers
    from graphdiff.lower.inductor.context import Context, SourcePosition
    from graphdiff.lower.inductor.pieces import integers
    from graphdiff.lower.inductor.values import TORCH_FLOATS, Tensor
    from graphdiff.lower.inductor_cpp import CppCall

    builder = Builder()
    sources = {name: SourcePosition(file=file, line=line) for name, (file, line) in raw.sources.items()}
    ctx = Context(builder, "model", sources, raw.modules, attention=raw.attention)
    arguments: list[Any] = []
    for item in raw.inputs:
        if item.kind == "size":
            arguments.append(len(tokens))  # the token dimension is the only symbolic size
        elif item.kind == "other":
            arguments.append(item.value)
        elif item.name in raw.handles:
            arguments.append(integers(np.asarray(raw.handles[item.name]), "int64", dynamic=False))
        elif item.name in raw.parameters:
            arguments.append(_parameter(builder, item, raw.parameters[item.name]))
        else:
            arguments.append(probe_input(item, tokens, positions))
    returned = CppCall(ctx, raw.code, "model", handlers(builder, raw), observe).run(arguments)
    results = [returned[o.position] for o in raw.outputs if o.kind == "output"]
    floats = [t for t in results if isinstance(t, Tensor) and t.dtype in TORCH_FLOATS]
    for i, tensor in enumerate(floats):
        builder.output("hidden_states" if i == 0 else f"output_{i}", tensor.read())
    return builder.program, builder.leaf_bits


def _parameter(builder: Builder, item: Any, tensor: Any) -> Any:
    from graphdiff.lower.aten import raw_bits
    from graphdiff.lower.inductor.function import relaid
    from graphdiff.lower.inductor.pieces import float_leaf, integers

    dense = tensor.detach().cpu().contiguous()
    if not tensor.is_floating_point():
        return integers(dense.numpy(), item.dtype, dynamic=False)
    made = float_leaf(builder, item.path or item.name, raw_bits(dense), item.dtype)
    return made if tuple(tensor.stride()) == made.strides else relaid(made, tuple(tensor.stride()))


def _in_pieces(raw: RawNativePieces, tokens: list[int], positions: list[int]) -> tuple[Program, dict[int, np.ndarray]]:
    from graphdiff.capture.vllm.native_ops import handlers
    from graphdiff.lower.inductor.context import SourcePosition
    from graphdiff.lower.inductor_cpp.pieces import CppPiece, program_from_cpp_pieces

    pieces = {}
    for name, piece in raw.pieces.items():
        sources = {node: SourcePosition(file=file, line=line) for node, (file, line) in piece.sources.items()}
        pieces[name] = CppPiece(piece.code, sources, piece.modules, [(o.kind, o.position) for o in piece.outputs])
    return program_from_cpp_pieces(wired(raw, pieces, tokens, positions), lambda builder: handlers(builder, raw))


# ---- eager


def _recorded(raw: RawNativeEager, tokens: list[int], positions: list[int]) -> tuple[Program, dict[int, np.ndarray], list[str]]:
    import inspect

    import torch

    from graphdiff.capture.transformers import module_paths
    from graphdiff.capture.vllm.native_ops import eager_rules
    from graphdiff.lower.aten import Positions, Recorder

    recorder = Recorder(Builder(), Positions(prefer=(inspect.getfile(type(raw.module)),)))
    recorder.custom_rules = eager_rules(raw, compute=True)
    for name, tensor in [*raw.module.named_parameters(), *raw.module.named_buffers()]:
        recorder.announce(tensor, name, dynamic=False)
    for handle, weight in raw.weights.items():
        recorder.announce(weight, raw.weight_names[handle] or f"weight {handle}", dynamic=False)
    ids, places = torch.tensor(tokens, dtype=torch.int32), torch.tensor(positions)
    recorder.announce(ids, "input_ids", dynamic=True)
    recorder.announce(places, "positions", dynamic=False)
    with module_paths(raw.module, "", recorder.module_stack), recorder:
        hidden = raw.forward(ids, places)
    recorder.builder.site = type(recorder.builder.site)()
    hidden = hidden[0] if isinstance(hidden, tuple) else hidden
    recorder.builder.output("hidden_states", recorder.elements(hidden.detach()))
    return recorder.builder.program, recorder.builder.leaf_bits, list(recorder.remarks.notes())
