"""Native (CPU) code of Inductor, as data. All private API of torch lies in `torch_2_13_native` and `torch_2_13_cpp`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphdiff.capture.inductor.code import CodeInput, FunctionOutput
from graphdiff.lower.inductor_cpp import CppCode


@dataclass(frozen=True)
class KernelRun:
    """What a kernel really did: its arguments before and after (tensors and sizes, copied)."""

    name: str
    before: list[Any] = field(repr=False)
    after: list[Any] = field(repr=False)


@dataclass(frozen=True)
class BackwardCode:
    """A backward's code: `call(args)` takes `inputs`, saved tensors before the gradients of results (`tangents_1` ...).
    `runs` of each kernel, in order, if it ran."""

    code: CppCode
    inputs: list[CodeInput]
    runs: list[KernelRun] = field(default_factory=list, repr=False)


@dataclass(frozen=True)
class NativeCode:
    """As OutputCode, for this machine. `results` (the tensors the function really returned) and `runs` (of each
    kernel, in order) are there if it ran; in training also the `tangents` its backward was given and the `gradients`
    it gave, one for each input (None: needs none)."""

    code: CppCode
    inputs: list[CodeInput]
    outputs: list[FunctionOutput]
    sources: dict[str, tuple[str, int]]
    modules: dict[str, str]
    results: list[Any] = field(default_factory=list, repr=False)
    runs: list[KernelRun] = field(default_factory=list, repr=False)
    backward: BackwardCode | None = None
    tangents: list[Any] = field(default_factory=list, repr=False)
    gradients: list[Any] = field(default_factory=list, repr=False)


@dataclass
class WatchedGraph:
    """A graph that somebody else compiled: `compiled` is theirs. `error` says why there is no code."""

    compiled: Any
    code: CppCode | None = None
    outputs: list[FunctionOutput] = field(default_factory=list)
    sources: dict[str, tuple[str, int]] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    runs: list[KernelRun] = field(default_factory=list, repr=False)
    error: Exception | None = None
    backward: BackwardCode | None = None


def watched_graph(graph: Any, compile_graph: Callable[[], Any], *, load: bool = False, watch: bool = False,
                  backward: bool = False) -> WatchedGraph:
    """Call `compile_graph()`, which hands Dynamo's `graph` to Inductor, and keep what the C++ backend writes.

    The code is written and not compiled, so that what comes back cannot be called, except with `load` or `watch`; with
    `watch`, `runs` grows with every kernel that runs. backward: one is expected, and written at once.
    """
    from graphdiff.capture.inductor.versions import backend

    return backend().watched_graph(graph, compile_graph, load, watch, backward)


def compile_by_inductor(graph: Any, inputs: Sequence[Any], config_patches: dict[str, Any] | None = None) -> Any:
    """What torch.compile's default backend does with Dynamo's `graph`. `config_patches` are Inductor's options."""
    from graphdiff.capture.inductor.versions import backend

    return backend().compile_by_inductor(graph, inputs, config_patches or {})


def native_code_for_function(fn: Callable[..., Any], inputs: Sequence[Any], *, config_patches: dict[str, Any] | None = None,
                             run: bool = False, training: bool = False) -> NativeCode:
    """Inductor's native code for `fn(*inputs)`: under no_grad, or with `training` forward and backward.

    With `run` it is compiled for real and run once, in training on random gradients of its results.
    """
    from graphdiff.capture.inductor.versions import backend

    return backend().native_code_for_function(fn, inputs, config_patches or {}, run, training)
