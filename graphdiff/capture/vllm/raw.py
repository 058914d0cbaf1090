"""What a running engine holds right after it compiled its model: the input of lowering, never written to disk."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from graphdiff.capture.inductor.code import OutputCode
from graphdiff.lower.inductor.engine_attention import AttentionLayer


@dataclass(frozen=True)
class Ref:
    """The result of another node of the same graph."""

    name: str


@dataclass(frozen=True)
class RawNode:
    """A node of an FX graph as data. In `args` and `kwargs` a `Ref` is a node's result, anything else a constant;
    what is no plain constant stands as its `repr`. `target` is a name (`vllm.unified_attention_with_output`,
    `operator.getitem`) or, of a `call_module`, the submodule."""

    name: str
    op: str
    target: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class RawInput:
    """An input of the whole graph. `kind`: `parameter` (also a buffer, as cos_sin_cache; `path` is its dotted name),
    `input` (a tensor that changes with every batch; `path` is its name, as input_ids), `size` (a symbolic size), or
    `other` (no tensor; `value` says it: the name of an attention layer). `source` is what Dynamo calls it."""

    name: str
    kind: Literal["parameter", "input", "size", "other"]
    path: str = ""
    source: str = ""
    dtype: str = ""
    shape: tuple[int | str, ...] = ()
    value: str = ""


@dataclass(frozen=True)
class RawPiece:
    """A compiled piece in one shape bucket. `bucket` is "dynamic" or the one number of tokens it is for, `tokens` the
    range. Element i of `call(args)` is argument i of the piece's `call_module` node in `top`, whatever the text calls
    it; `code.outputs` tells which results of `call` are the piece's."""

    name: str
    code: OutputCode
    bucket: Literal["dynamic"] | int
    tokens: tuple[int, int]

    @property
    def kernels(self) -> int:
        """The number of Triton kernels in its text."""
        return self.code.text.count("@triton.jit")


@dataclass
class RawEngineCapture:
    """The engine's graph, split at attention.

    `top` is the split graph in order: inputs, one `call_module` per submodule, `getitem`s, the output. A submodule is
    in `pieces` (compiled; one entry per shape bucket, the dynamic one first) or in `splitting` (attention and cache
    update, run as they are; its nodes, inputs and output included).
    `parameters` holds the real merged tensors by input name. `returns_tuple` tells for each submodule whether its
    result is indexed (`getitem` nodes in `top`) or is itself the tensor. `fingerprint` is the checkpoint's, as
    `models.fingerprint` makes it, empty if its folder is not at hand. `attention`: its layers by name. `inductor`: the options of `options.in_force`.
    """

    model: str
    fingerprint: str
    target: str
    mode: str
    versions: dict[str, str]
    config: dict[str, Any]
    compile_config: dict[str, Any]
    top: list[RawNode]
    pieces: dict[str, list[RawPiece]]
    splitting: dict[str, list[RawNode]]
    returns_tuple: dict[str, bool]
    inputs: list[RawInput]
    parameters: dict[str, Any] = field(repr=False)
    attention: dict[str, AttentionLayer] = field(default_factory=dict)
    inductor: dict[str, Any] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    not_captured: list[str] = field(default_factory=list)

    def of_kind(self, kind: str) -> Iterator[RawInput]:
        """The inputs of one kind, in order."""
        return (item for item in self.inputs if item.kind == kind)

    @property
    def parameter_names(self) -> dict[str, str]:
        """Input name -> dotted parameter name in the engine's model."""
        return {item.name: item.path for item in self.of_kind("parameter")}
