"""What an engine that runs on this machine's CPU holds: compiled C++ code, whole or in pieces, or the model itself (eager)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from graphdiff.capture.inductor.code import FunctionOutput
from graphdiff.capture.inductor.native import KernelRun
from graphdiff.capture.vllm.raw import RawInput, RawNode
from graphdiff.lower.inductor.engine_attention import AttentionLayer
from graphdiff.lower.inductor_cpp import CppCode


@dataclass
class RawNative:
    """What both modes say about the engine. `weights` are those that a matmul handle hides, by the handle's number;
    their names are in `weight_names`."""

    model: str
    fingerprint: str
    mode: str
    versions: dict[str, str]
    config: dict[str, Any]
    compile_config: dict[str, Any]
    weights: dict[int, Any] = field(repr=False)
    weight_names: dict[int, str] = field(repr=False)
    target: str = "native"
    attention: dict[str, AttentionLayer] = field(default_factory=dict)
    inductor: dict[str, Any] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    not_captured: list[str] = field(default_factory=list)

    def codes(self) -> dict[str, CppCode]:
        """The compiled code by the name of its graph or piece; none of an eager engine."""
        return {}


@dataclass
class RawNativeCompiled(RawNative):
    """One whole graph. Element i of `call(args)` is `inputs[i]`; `parameters` are the real tensors by input name;
    `handles` the numbers of inputs that are matmul handles. `outputs` tells which results of `call` are the graph's. `runs` grows while the engine runs, if it was asked for."""

    code: CppCode = field(default=None, repr=False)  # type: ignore[assignment]
    inputs: list[RawInput] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict, repr=False)
    handles: dict[str, int] = field(default_factory=dict)
    outputs: list[FunctionOutput] = field(default_factory=list)
    sources: dict[str, tuple[str, int]] = field(default_factory=dict, repr=False)
    modules: dict[str, str] = field(default_factory=dict, repr=False)
    runs: list[KernelRun] = field(default_factory=list, repr=False)

    def codes(self) -> dict[str, CppCode]:
        return {"model": self.code}


@dataclass(frozen=True)
class RawNativePiece:
    """A piece as Inductor's C++ code for any number of tokens; fields as in `RawNativeCompiled`."""

    name: str
    code: CppCode = field(repr=False)
    outputs: list[FunctionOutput]
    sources: dict[str, tuple[str, int]] = field(repr=False)
    modules: dict[str, str] = field(repr=False)
    runs: list[KernelRun] = field(repr=False)


@dataclass
class RawNativePieces(RawNative):
    """The graph split at attention, as in `RawEngineCapture`. `parameters`, `handles`: as in `RawNativeCompiled`."""

    top: list[RawNode] = field(default_factory=list)
    pieces: dict[str, RawNativePiece] = field(default_factory=dict)
    splitting: dict[str, list[RawNode]] = field(default_factory=dict)
    returns_tuple: dict[str, bool] = field(default_factory=dict)
    inputs: list[RawInput] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict, repr=False)
    handles: dict[str, int] = field(default_factory=dict)

    def codes(self) -> dict[str, CppCode]:
        return {name: piece.code for name, piece in self.pieces.items()}


@dataclass
class RawNativeEager(RawNative):
    """The model as it stands in the worker; `forward(ids, positions)` runs it outside any batch."""

    module: Any = field(default=None, repr=False)
    forward: Callable[[Any, Any], Any] = field(default=None, repr=False)  # type: ignore[assignment]
