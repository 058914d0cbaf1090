"""A whole engine graph: compiled pieces wired by the split graph, attention between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphdiff.errors import GraphdiffError
from graphdiff.lower.inductor import extern
from graphdiff.lower.inductor.context import Context, SourcePosition
from graphdiff.lower.inductor.engine_attention import AttentionLayer
from graphdiff.lower.inductor.output_code import Call, OutputCode
from graphdiff.lower.inductor.values import TORCH_FLOATS, IntStorage, Tensor
from graphdiff.program.builder import Builder, Storage, contiguous
from graphdiff.program.types import Program

ATTENTION = "vllm.unified_attention_with_output"
HARMLESS = frozenset({"vllm.unified_kv_cache_update"})
"""Ops between pieces that compute nothing the graph reads."""


@dataclass(frozen=True)
class GraphNode:
    """A node of the split graph; a reference to another node in args is {"n": name}."""

    name: str
    op: str
    target: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Parameter:
    """Raw bits (dtypes.STORAGE) of the tensor's shape in contiguous order, and its format."""

    raw: np.ndarray
    dtype: str


@dataclass(frozen=True)
class Piece:
    """Output code of one piece. sources, modules: by FX node name (see Context); kernel_sources: the FX nodes of each
    Triton kernel, for kernels whose comment does not say (combo kernels).

    results: which values are the piece's, in order: ("output", i) of what call() returns, ("input", i) of its
    arguments, ("constant", value). None: what call() returns.
    """

    text: str
    kernel_sources: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sources: Mapping[str, SourcePosition] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    results: Sequence[tuple[str, Any]] | None = None


@dataclass(frozen=True)
class EnginePieces:
    """What a captured engine graph consists of, as plain data.

    top: the split graph; splitting: the submodules between the pieces, as nodes; pieces: by submodule (`Piece`; of native code
    `CppPiece`).
    parameters: by placeholder, handles: integers by placeholder (numbers of matmul handles). probe: token ids and positions by placeholder, tokens: how many.
    attention: the engine's layers by name, others: what placeholders hold that are no tensors (a layer's name). modules: of the splitting submodules' nodes, by name.
    not_tuples: submodules whose result is the tensor itself, not indexed by a getitem.
    """

    top: Sequence[GraphNode]
    splitting: Mapping[str, Sequence[GraphNode]]
    pieces: Mapping[str, Any]
    parameters: Mapping[str, Parameter]
    probe: Mapping[str, Tensor]
    tokens: int
    attention: Mapping[str, AttentionLayer] | None = None
    others: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    not_tuples: frozenset[str] = frozenset()
    handles: Mapping[str, int] = field(default_factory=dict)


def program_from_pieces(engine: EnginePieces) -> tuple[Program, dict[int, np.ndarray]]:
    """The engine's program on the probe, and the raw bits of its leaves.

    Outputs: `hidden_states`; if the graph returns several tensors, `hidden_states`, `output_1`, `output_2` ...
    Raises GraphdiffError naming the construct, kernel and line that has no lowering.
    """
    return Wiring(Builder(), engine).program()


class Wiring:
    """Runs the split graph's nodes in order; `env` holds what each returned. The pieces are CUDA's code."""

    def __init__(self, builder: Builder, engine: EnginePieces) -> None:
        self.builder, self.engine = builder, engine
        self.env: dict[str, Any] = {}
        self.returned: list[Tensor] = []

    def program(self) -> tuple[Program, dict[int, np.ndarray]]:
        """See `program_from_pieces`."""
        for node in self.engine.top:
            self.run(node)
        for i, tensor in enumerate(self.returned):
            self.builder.output("hidden_states" if i == 0 else f"output_{i}", tensor.read())
        return self.builder.program, self.builder.leaf_bits

    def call(self, ctx: Context, name: str, piece: Any) -> Call:
        """One run of a piece's code."""
        return Call(ctx, OutputCode(piece.text, name, piece.kernel_sources))

    def run(self, node: GraphNode) -> None:
        if node.op == "placeholder":
            self.env[node.name] = self.placeholder(node.name)
        elif node.op == "call_module":
            arguments = [self.resolve(a) for a in node.args]
            run = self.piece if node.target in self.engine.pieces else self.between
            self.env[node.name] = run(node.target, arguments)
        elif node.op == "call_function" and "getitem" in node.target:
            self.env[node.name] = self.resolve(node.args[0])[node.args[1]]
        elif node.op == "output":
            values = node.args[0]
            values = values if isinstance(values, (list, tuple)) else [values]
            self.returned = [v for v in map(self.resolve, values) if isinstance(v, Tensor) and v.dtype in TORCH_FLOATS]
        else:
            raise GraphdiffError(f"no lowering for {node.target} in the split graph", where=node.name)

    def resolve(self, argument: Any) -> Any:
        if isinstance(argument, dict) and "n" in argument:
            return self.env[argument["n"]]
        return argument

    def placeholder(self, name: str) -> Any:
        engine = self.engine
        if name in engine.probe:
            return engine.probe[name]
        if name in engine.parameters:
            parameter = engine.parameters[name]
            return float_leaf(self.builder, name, parameter.raw, parameter.dtype)
        if name in engine.handles:
            return integers(np.asarray(engine.handles[name]), "int64", dynamic=False)
        if name[:1] == "s" and name[1:].isdigit():
            return engine.tokens  # the token dimension is the only symbolic size
        return engine.others.get(name, name)

    def piece(self, name: str, arguments: list[Any]) -> Any:
        piece = self.engine.pieces[name]
        ctx = Context(self.builder, name, piece.sources, piece.modules, attention=self.engine.attention)
        results = self.call(ctx, name, piece).run(list(arguments))
        if piece.results is not None:
            held = {"output": results, "input": arguments}
            results = [held[kind][which] if kind in held else which for kind, which in piece.results]
        return results[0] if name in self.engine.not_tuples else results

    def between(self, name: str, arguments: list[Any]) -> None:
        """A splitting submodule: attention writes its output argument; the cache update moves data away."""
        nodes = self.engine.splitting.get(name)
        if nodes is None:
            raise GraphdiffError(f"no output code for the piece {name}", fix="capture again with fresh compile caches")
        env = dict(zip([n.name for n in nodes if n.op == "placeholder"], arguments))
        for node in nodes:
            if node.target == ATTENTION:
                self.attention(name, node.name, *(env[a["n"]] if isinstance(a, dict) else a for a in node.args[:5]))
            elif node.op not in ("placeholder", "output") and node.target not in HARMLESS:
                raise GraphdiffError(f"no lowering for {node.target}", where=name)

    def attention(self, piece: str, name: str, q: Tensor, k: Tensor, v: Tensor, out: Tensor, layer: str = "") -> None:
        ctx = Context(self.builder, piece, modules=self.engine.modules, attention=self.engine.attention)
        ctx.enter("attention", (name,), 0)
        ctx.at(0, name)
        extern.engine_attention(ctx, q, k, v, out, layer)


def integers(values: np.ndarray, dtype: str, *, dynamic: bool) -> Tensor:
    values = np.asarray(values)
    return Tensor(IntStorage.of(values, dtype, dynamic=dynamic), values.shape, contiguous(values.shape))


def float_leaf(builder: Builder, name: str, raw: np.ndarray, dtype: str, *, dynamic: bool = False, **attrs: Any) -> Tensor:
    """A leaf and the memory it lies in."""
    leaf = builder.leaf(name, raw, dtype, dynamic=dynamic, **attrs)
    return Tensor(Storage.of_leaf(leaf, dtype), leaf.shape, contiguous(leaf.shape))
