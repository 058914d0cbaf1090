"""Inductor's output code and what is needed to evaluate it without running it."""

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class CodeInput:
    """One element of the list that the output code's `call(args)` takes.

    `kind` is `tensor`, or `size` for an integer. `value` is the real tensor or number, where there is one. `source`
    is what Dynamo calls it (`L['x']`), `argument` its place among the flattened inputs of the function, `parameter`
    its dotted name in the module; `argument` and `parameter` are both None for what the function closes over.
    """

    name: str
    kind: Literal["tensor", "size"]
    value: Any = field(default=None, repr=False)
    source: str = ""
    argument: int | None = None
    parameter: str | None = None


@dataclass(frozen=True)
class FunctionOutput:
    """One tensor that the function returns (its result flattened): element `position` of what `call` returns
    (`kind` "output") or of its arguments ("input"), or a plain `value` ("constant")."""

    kind: Literal["output", "input", "constant"]
    position: int = -1
    value: Any = None


@dataclass(frozen=True)
class OutputCode:
    """Output code of one graph. `call(args)` takes `inputs` and returns a tuple, of which `outputs` are the ones the
    graph's user sees (in training others are saved for the backward).

    `kernel_sources` tells for each Triton kernel the Dynamo nodes it computes, combo kernels included, whose comment
    in the text does not say. For a Dynamo node, `sources` tells the model's file and line, `layer_sources` those of the
    arithmetic (in the engine's or library's layer that the model calls), `modules` its module path.
    """

    text: str
    target: str
    inputs: list[CodeInput]
    outputs: list[FunctionOutput]
    kernel_sources: dict[str, list[str]] = field(default_factory=dict)
    sources: dict[str, tuple[str, int]] = field(default_factory=dict)
    layer_sources: dict[str, tuple[str, int]] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    backward: "OutputCode | None" = None
