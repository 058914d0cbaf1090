"""vllm 0.32: the engine as it runs on this CPU, compiled (DYNAMO_TRACE_ONCE) or eager. Used by `vllm_0_32` alone."""

import contextlib
import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

from graphdiff.capture.vllm import session
from graphdiff.capture.vllm.describe import described_inputs
from graphdiff.capture.vllm.raw_native import RawNative, RawNativeCompiled, RawNativeEager, RawNativePieces
from graphdiff.capture.vllm.vllm_0_32_attention import attention_layers
from graphdiff.capture.vllm.vllm_0_32_result import compile_config, fingerprint_of, inductor_options, versions
from graphdiff.errors import GraphdiffError

NOT_CAPTURED = [
    "lm_head, the logits processor and the sampler run outside the model's forward and were not captured.",
    "Attention and the KV cache update are opaque ops; what they round inside is not captured.",
]
ATTENTION = "unified_attention"
FORCED = "vLLM runs VLLM_COMPILE on GPUs only and puts DYNAMO_TRACE_ONCE in its place on a CPU; here it was made to keep it."
_weights: dict[int, tuple[Any, str]] = {}
_configs: list[Any] = []


def is_native(mode: str = "") -> bool:
    """True while a capture for this machine is under way (in `mode`, if one is named)."""
    current = session.active()
    if current is None or current.request.target != "native":
        return False
    return not mode or current.request.mode == mode


def is_whole() -> bool:
    """True while a native capture in one of this machine's own modes is under way: one graph or none, no pieces."""
    return is_native() and not is_native("vllm_compile")


def is_watched() -> bool:
    """True if what the engine's kernels do is to be kept while it runs (for tests; it takes memory without end)."""
    return bool(session.active().request.options.get("run"))


def install() -> None:
    """Wrap what a native capture needs; nothing changes for other captures."""
    _keep_weights()
    _keep_config()
    _watch_inductor()
    _watch_model()


# ---- matmul handles hide the weight


def _keep_weights() -> None:
    import vllm._custom_ops as custom_ops
    from vllm.model_executor.layers import utils

    create, dispatch = custom_ops.create_onednn_mm, utils.dispatch_cpu_unquantized_gemm

    @functools.wraps(create)
    def create_and_keep(weight: Any, *args: Any, **kwargs: Any) -> Any:
        handler = create(weight, *args, **kwargs)
        if is_native():
            _weights[int(handler.handler_tensor)] = (weight.detach(), "")
        return handler

    @functools.wraps(dispatch)
    def dispatch_onednn(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_native():
            return dispatch(layer, *args, **kwargs)
        before = set(_weights)
        kept = utils.check_cpu_sgl_kernel
        utils.check_cpu_sgl_kernel = lambda n, k, dtype: False  # packs the weight away for good
        try:
            result = dispatch(layer, *args, **kwargs)
        finally:
            utils.check_cpu_sgl_kernel = kept
        for handle in set(_weights) - before:
            _weights[handle] = (_weights[handle][0], str(getattr(layer, "prefix", "")))
        return result

    custom_ops.create_onednn_mm = create_and_keep
    _replace_everywhere("dispatch_cpu_unquantized_gemm", dispatch, dispatch_onednn)


def _replace_everywhere(name: str, old: Callable[..., Any], new: Callable[..., Any]) -> None:
    import sys

    for module in list(sys.modules.values()):
        if (getattr(module, "__name__", "") or "").startswith("vllm.") and vars(module).get(name) is old:
            setattr(module, name, new)


def _common(config: Any, mode: str) -> dict[str, Any]:
    request = session.active().request
    return {
        "model": request.model or str(config.model_config.model),
        "fingerprint": request.fingerprint or fingerprint_of(str(config.model_config.model)),
        "mode": mode,
        "versions": versions(),
        "config": json.loads(config.model_config.hf_config.to_json_string(use_diff=False)),
        "compile_config": compile_config(config, request),
        "attention": attention_layers(config),
        "inductor": inductor_options(config, request) if mode != "eager" else {},
        "weights": {handle: weight for handle, (weight, _) in _weights.items()},
        "weight_names": {handle: name for handle, (_, name) in _weights.items()},
        "differences": [
            "Small matmuls ran as oneDNN's (`_C.onednn_mm`), as the large ones do; where AMX is there vLLM would pack "
            "some of them for another kernel, which moves no rounding."
        ],
        "not_captured": list(NOT_CAPTURED),
    }


# ---- compiled: one graph, through torch.compile's Inductor


def _watch_inductor() -> None:
    import torch

    from graphdiff.capture.inductor.native import watched_graph

    wrapper = torch._TorchCompileInductorWrapper
    compile_graph = wrapper.__call__

    @functools.wraps(compile_graph)
    def watched(self: Any, graph: Any, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
        current = session.active()
        if not is_native("compiled") or current.finished or not _is_model(graph):
            return compile_graph(self, graph, example_inputs, **kwargs)
        inputs, parameters = described_inputs(graph.graph, example_inputs)
        seen = watched_graph(graph, lambda: compile_graph(self, graph, example_inputs, **kwargs),
                             load=not current.request.stop, watch=is_watched())
        if seen.error is not None:
            current.failed(seen.error)
            return seen.compiled
        config = _configs[-1]
        current.captured(RawNativeCompiled(
            **_common(config, f"{config.compilation_config.mode.name}, Inductor's C++ code"),
            code=seen.code, inputs=inputs, parameters=parameters, handles=_handles(inputs, example_inputs), outputs=seen.outputs, sources=seen.sources,
            modules=seen.modules, runs=seen.runs))  # fmt: skip
        return seen.compiled

    wrapper.__call__ = watched


def raw_pieces(backend: Any, kept: dict[str, Any], pieces: dict[str, list[Any]], inputs: Sequence[Any], parameters: dict[str, Any],
               example_inputs: Sequence[Any]) -> RawNativePieces:
    """What `backend` (VLLM_COMPILE) has compiled for this machine."""
    from torch._inductor.compile_fx import graph_returns_tuple

    config, items = backend.vllm_config, backend.piecewise_graphs
    common = _common(config, f"{config.compilation_config.mode.name}, Inductor's C++ code")
    common["differences"] = [*common["differences"], FORCED]
    return RawNativePieces(
        **common, top=kept["top"], pieces={name: found[0] for name, found in pieces.items()},
        splitting={item.submod_name: kept[item.submod_name] for item in items if item.is_splitting_graph},
        returns_tuple={item.submod_name: graph_returns_tuple(item.graph) for item in items},
        inputs=list(inputs), parameters=parameters, handles=_handles(inputs, example_inputs))


def _handles(inputs: Sequence[Any], values: Sequence[Any]) -> dict[str, int]:
    """Inputs that are matmul handles: by their number, or by the layer they lie in where only their shape is known."""
    from torch._subclasses.fake_tensor import FakeTensor

    found = {}
    for item, value in zip(inputs, values, strict=True):
        if not item.path.endswith("handler_tensor"):
            continue
        if not isinstance(value, FakeTensor) and int(value) in _weights:
            found[item.name] = int(value)
            continue
        layer = item.path.split(".cpu_linear")[0]
        of_layer = [h for h, (_, name) in _weights.items() if name == layer or name.endswith(f".{layer}")]
        if len(of_layer) == 1:
            found[item.name] = of_layer[0]
    return found


def _keep_config() -> None:
    """The engine's configuration is at hand where a model is wrapped, not where its graph is compiled."""
    from vllm.compilation.wrapper import TorchCompileWithNoGuardsWrapper

    make = TorchCompileWithNoGuardsWrapper.__init__

    @functools.wraps(make)
    def make_and_keep(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        _configs[:] = [self.vllm_config]

    TorchCompileWithNoGuardsWrapper.__init__ = make_and_keep


def _is_model(graph: Any) -> bool:
    """The model's graph; the sampler compiles helpers of its own."""
    return any(ATTENTION in str(node.target) for node in graph.graph.nodes)


# ---- eager: the model in the worker


def _watch_model() -> None:
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    initialize = WorkerWrapperBase.initialize_from_config

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = initialize(self, *args, **kwargs)
        current = session.active()
        if is_native("eager") and not current.finished and self.vllm_config.parallel_config.rank == 0:
            module = self.worker.model_runner.get_model()
            current.captured(RawNativeEager(
                **_common(self.vllm_config, "eager"), module=module,
                forward=functools.partial(_forward, self.vllm_config, module)))
        return result

    WorkerWrapperBase.initialize_from_config = watched


def _forward(config: Any, module: Any, ids: Any, positions: Any) -> Any:
    """The hidden states of some tokens, outside any batch: attention returns without having computed."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.forward_context import set_forward_context

    with set_current_vllm_config(config), torch.no_grad(), set_forward_context(None, config, num_tokens=len(ids)):
        return module(input_ids=ids, positions=positions)


def why_nothing(config: Any) -> GraphdiffError:
    """An engine started, and no native capture was made."""
    return GraphdiffError(
        "nothing was captured: no graph of the model was compiled",
        where=f"mode {config.compilation_config.mode.name}",
        fix="leave out --enforce-eager, or capture with --mode eager",
    )


@contextlib.contextmanager
def forgotten_weights():
    """No weight of an earlier engine is mistaken for one of this engine."""
    _weights.clear()
    yield
    _weights.clear()


__all__ = ["RawNative", "forgotten_weights", "install", "is_native", "why_nothing"]
