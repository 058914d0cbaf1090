"""Everything that graphdiff uses of the private API of vllm 0.32.

Interface: `install_hooks`, which reports to the session of this process (`session.active()`), `start_engine`, and
`forget_engine`. With no session every hook passes straight through.
"""

import contextlib
import functools
import importlib.metadata
import platform
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from graphdiff.capture.inductor import OutputCode, cuda_code_for_graph
from graphdiff.capture.models.reference import fingerprint, read_config
from graphdiff.capture.vllm import session
from graphdiff.capture.vllm.describe import described_inputs, described_nodes
from graphdiff.capture.vllm.raw import RawEngineCapture, RawPiece
from graphdiff.errors import GraphdiffError

# A small engine: it starts, compiles, and never runs.
ENGINE = {
    "skip_tokenizer_init": True,
    "dtype": "bfloat16",
    "max_model_len": 128,
    "max_num_batched_tokens": 256,
    "max_num_seqs": 4,
    "enable_prefix_caching": False,
    "disable_log_stats": True,
    "use_tqdm_on_load": False,
    "seed": 0,
}
NOT_CAPTURED = [
    "lm_head, the logits processor and the sampler run outside the compiled graph and were not captured.",
    "Attention and the KV cache update run as opaque ops between the pieces; what they round inside is not captured.",
]
_installed = False


def install_hooks() -> None:
    """Wrap the engine's functions, once per process."""
    global _installed
    if _installed:
        return
    _installed = True
    _keep_compile_mode()
    _keep_plain_matmuls()
    _watch_backend()
    _watch_pieces()
    _watch_aot_cache()
    _watch_end_of_start()


def start_engine(path: str, *, compile_sizes: Sequence[int] = (), **engine_options: Any) -> Any:
    """Start an engine on the checkpoint at `path` in the mode that is default on CUDA; returns it."""
    from vllm import LLM
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    compilation = {"mode": 3, "compile_sizes": list(compile_sizes)}
    with _no_binding():
        return LLM(path, compilation_config=compilation, **{**ENGINE, **engine_options})


@contextlib.contextmanager
def _no_binding() -> Iterator[None]:
    """The CPU worker binds memory and threads of its process, which may not be its own here."""
    import torch

    set_num_threads = torch.set_num_threads
    with mock.patch.object(torch.ops._C, "init_cpu_memory_env", lambda nodes: None, create=True):
        try:
            yield
        finally:
            torch.set_num_threads = set_num_threads


def forget_engine() -> None:
    """Undo what a stopped start left in this process, so that another engine can start in it."""
    import torch
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    cleanup_dist_env_and_memory()
    torch._dynamo.reset()


# ---- CUDA's defaults on a CPU


def _keep_compile_mode() -> None:
    """The CPU platform swaps VLLM_COMPILE for another mode and adds options of its own; put back what CUDA has."""
    from vllm.config import CompilationMode
    from vllm.platforms.cpu import CpuPlatform

    check = CpuPlatform.check_and_update_config.__func__

    def check_and_keep(cls: type, vllm_config: Any) -> None:
        compilation = vllm_config.compilation_config
        asked, wrap = compilation.mode, compilation.ir_enable_torch_wrap
        backend, options = compilation.backend, dict(compilation.inductor_compile_config)
        check(cls, vllm_config)
        if session.active() is not None and asked == CompilationMode.VLLM_COMPILE:
            compilation.mode, compilation.ir_enable_torch_wrap = asked, wrap
            compilation.backend = backend or "inductor"
            compilation.inductor_compile_config = options
            compilation.compile_sizes = compilation.compile_sizes or []

    CpuPlatform.check_and_update_config = classmethod(check_and_keep)


def _keep_plain_matmuls() -> None:
    """CPU matmul kernels pack the weight away behind a handle; CUDA's graph has an aten matmul with the weight."""
    import vllm._custom_ops as custom_ops
    from vllm.model_executor.layers import utils

    dispatch = utils.dispatch_cpu_unquantized_gemm

    @functools.wraps(dispatch)
    def dispatch_plain(*args: Any, **kwargs: Any) -> Any:
        if session.active() is None:
            return dispatch(*args, **kwargs)
        kept = custom_ops._supports_onednn, utils.check_cpu_sgl_kernel
        custom_ops._supports_onednn, utils.check_cpu_sgl_kernel = False, lambda n, k, dtype: False
        try:
            return dispatch(*args, **kwargs)
        finally:
            custom_ops._supports_onednn, utils.check_cpu_sgl_kernel = kept

    _replace_everywhere("dispatch_cpu_unquantized_gemm", dispatch, dispatch_plain)


def _replace_everywhere(name: str, old: Callable[..., Any], new: Callable[..., Any]) -> None:
    """Replace a function also where it was imported by name."""
    import sys

    for module in list(sys.modules.values()):
        if (getattr(module, "__name__", "") or "").startswith("vllm.") and vars(module).get(name) is old:
            setattr(module, name, new)


# ---- what the engine compiles


class _Collector:
    """The pieces of the graph that a backend is compiling."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.pieces: dict[str, list[RawPiece]] = {}

    def add(self, index: int, compile_range: Any, codes: list[OutputCode]) -> None:
        names = [item.submod_name for item in self.backend.piecewise_graphs if not item.is_splitting_graph]
        name = names[index]
        if len(codes) != 1:
            raise GraphdiffError(
                f"Inductor split piece {name} into {len(codes)} graphs",
                where="use_inductor_graph_partition",
                fix="switch it off for the capture",
            )
        bucket = compile_range.start if compile_range.is_single_size() else "dynamic"
        piece = RawPiece(name, codes[0], bucket, (compile_range.start, compile_range.end))
        self.pieces.setdefault(name, []).append(piece)
        self.pieces[name].sort(key=lambda p: (p.bucket != "dynamic", p.tokens))


_collector: _Collector | None = None


def _watch_backend() -> None:
    """Around the compilation of a whole graph: its real inputs are at hand, and all its pieces afterwards."""
    from vllm.compilation.backends import VllmBackend

    call = VllmBackend.__call__

    def watched(self: Any, graph: Any, example_inputs: Sequence[Any]) -> Any:
        global _collector
        current = session.active()
        if current is None or current.finished:
            return call(self, graph, example_inputs)
        _collector = _Collector(self)
        try:
            inputs, parameters = described_inputs(graph.graph, example_inputs)
            with _submodules_kept(self) as kept:
                result = call(self, graph, example_inputs)
            if current.finished:
                return result  # the capture of a piece failed, in an engine that goes on
            raw = _raw_capture(self, kept, _collector.pieces, current.request, inputs, parameters)
        finally:
            _collector = None
        current.captured(raw)
        return result

    VllmBackend.__call__ = watched


@contextlib.contextmanager
def _submodules_kept(backend: Any) -> Iterator[dict[str, Any]]:
    """The split graph as data, taken before compiled pieces replace its submodules."""
    from vllm.compilation import backends

    kept: dict[str, Any] = {}
    split = backends.split_graph

    def watched(*args: Any, **kwargs: Any) -> Any:
        split_graph, items = split(*args, **kwargs)
        kept["top"] = described_nodes(split_graph.graph)
        for item in items:
            kept[item.submod_name] = described_nodes(item.graph.graph)
        return split_graph, items

    backends.split_graph = watched
    try:
        yield kept
    finally:
        backends.split_graph = split


def _watch_pieces() -> None:
    """Around the compilation of one piece for one range of token counts."""
    from vllm.compilation.backends import CompilerManager

    compile_piece = CompilerManager.compile

    @functools.wraps(compile_piece)
    def watched(
        self: Any, graph: Any, example_inputs: Sequence[Any], additional_inductor_config: dict[str, Any],
        compilation_config: Any, compile_range: Any, graph_index: int = 0, **kwargs: Any,
    ) -> Any:  # fmt: skip
        current = session.active()
        if _collector is not None and current is not None and not current.finished:
            try:
                codes = _piece_code(self, graph, example_inputs, additional_inductor_config, compile_range)
                _collector.add(graph_index, compile_range, codes)
            except Exception as error:
                current.failed(error)
            if current.request.stop:
                return graph  # nobody will run it
        return compile_piece(
            self, graph, example_inputs, additional_inductor_config, compilation_config,
            compile_range=compile_range, graph_index=graph_index, **kwargs,
        )  # fmt: skip

    CompilerManager.compile = watched


def _piece_code(
    manager: Any, graph: Any, example_inputs: Sequence[Any], options: dict[str, Any], compile_range: Any
) -> list[OutputCode]:
    """The CUDA code of one piece, with the options and passes that the engine gives Inductor."""
    from vllm.compilation.compiler_interface import set_functorch_config, set_inductor_config

    request = session.active().request
    options = {**options, "combo_kernels": request.combo_kernels}
    set_inductor_config(options, compile_range)
    set_functorch_config()
    with manager.compile_context(compile_range):
        return cuda_code_for_graph(graph, example_inputs, options, request.target)


# ---- when nothing is compiled


def _watch_aot_cache() -> None:
    """A model that is loaded from vLLM's own cache is not traced: there is nothing to capture."""
    from vllm.compilation import decorators

    load = decorators._try_load_aot_compiled_fn

    def watched(*args: Any, **kwargs: Any) -> Any:
        loaded = load(*args, **kwargs)
        current = session.active()
        if loaded is not None and current is not None:
            current.failed(
                GraphdiffError(
                    "nothing was captured: the engine loaded compiled code from its cache and traced nothing",
                    where="Directly load AOT compilation",
                    fix="set VLLM_DISABLE_COMPILE_CACHE=1, or VLLM_CACHE_ROOT to an empty folder",
                )
            )
        return loaded

    decorators._try_load_aot_compiled_fn = watched


def _watch_end_of_start() -> None:
    """At the end of a worker's start everything has been compiled that ever will be."""
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    initialize = WorkerWrapperBase.initialize_from_config

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = initialize(self, *args, **kwargs)
        current = session.active()
        if current is not None:
            current.failed(_why_nothing(self.vllm_config))
        return result

    # Workers without a KV cache end with compile_or_warm_up_model alone.
    WorkerWrapperBase.initialize_from_config = watched


def _why_nothing(vllm_config: Any) -> GraphdiffError:
    from vllm.compilation.counter import compilation_counter
    from vllm.config import CompilationMode

    compilation = vllm_config.compilation_config
    mode = compilation.mode
    where = f"mode {getattr(mode, 'name', mode)}"
    if vllm_config.model_config.enforce_eager:
        why, fix = "the engine runs eagerly", "leave out enforce_eager / --enforce-eager"
    elif mode == CompilationMode.NONE and vllm_config._uses_breakable_cudagraph_by_default():
        why, fix = (
            "breakable CUDA graphs switch compilation off for this architecture",
            "set VLLM_USE_BREAKABLE_CUDAGRAPH=0",
        )
    elif mode != CompilationMode.VLLM_COMPILE:
        why = "this mode has no compiled pieces"
        fix = "start the engine with compilation_config.mode=3 (VLLM_COMPILE), the default on CUDA"
    elif compilation_counter.num_aot_artifacts_loaded or compilation_counter.num_compiled_artifacts_loaded:
        why = "the engine loaded compiled code from its cache"
        fix = "set VLLM_DISABLE_COMPILE_CACHE=1, or VLLM_CACHE_ROOT to an empty folder"
    elif not compilation_counter.num_graphs_seen:
        why = "no graph of the model was compiled, at most a helper of the sampler"
        fix = "check that vLLM's model class has @support_torch_compile"
    else:
        why, fix = "graphs were compiled before the capture began", "set GRAPHDIFF_CAPTURE before the engine starts"
    return GraphdiffError(f"nothing was captured: {why}", where=where, fix=fix)


# ---- the result


def _raw_capture(
    backend: Any, kept: dict[str, Any], pieces: dict[str, list[RawPiece]], request: Any, inputs: list, parameters: dict
) -> RawEngineCapture:
    from torch._inductor.compile_fx import graph_returns_tuple

    config, compilation = backend.vllm_config, backend.compilation_config
    items = backend.piecewise_graphs
    return RawEngineCapture(
        model=request.model or str(config.model_config.model),
        fingerprint=request.fingerprint or _fingerprint(str(config.model_config.model)),
        target=request.target,
        mode=compilation.mode.name,
        versions=_versions(),
        config=config.model_config.hf_config.to_dict(),
        compile_config=_compile_config(config, request),
        top=kept["top"],
        pieces=pieces,
        splitting={item.submod_name: kept[item.submod_name] for item in items if item.is_splitting_graph},
        returns_tuple={item.submod_name: graph_returns_tuple(item.graph) for item in items},
        inputs=inputs,
        parameters=parameters,
        differences=_differences(compilation, request, pieces),
        not_captured=list(NOT_CAPTURED),
    )


def _fingerprint(model: str) -> str:
    """The fingerprint of the checkpoint that somebody's engine runs, where it is a folder."""
    config = Path(model) / "config.json"
    return fingerprint(Path(model), read_config(config)) if config.is_file() else ""


def _versions() -> dict[str, str]:
    from graphdiff.capture.vllm.versions import installed_version

    others = {name: importlib.metadata.version(name) for name in ("torch", "triton", "transformers")}
    return {"vllm": installed_version(), **others, "python": platform.python_version()}


def _compile_config(config: Any, request: Any) -> dict[str, Any]:
    """The switches that can move a rounding."""
    compilation, kernels = config.compilation_config, config.kernel_config
    passes = compilation.pass_config
    return {
        "mode": compilation.mode.name,
        "custom_ops": list(compilation.custom_ops),
        "splitting_ops": list(compilation.splitting_ops or []),
        "compile_sizes": list(compilation.compile_sizes or []),
        "use_inductor_graph_partition": bool(compilation.use_inductor_graph_partition),
        "combo_kernels": request.combo_kernels,
        "ir_op_priority": {k: list(v) for k, v in vars(kernels.ir_op_priority).items() if isinstance(v, list)},
        "enabled_passes": sorted(name for name, value in vars(passes).items() if value is True),
        "dtype": str(config.model_config.dtype),
        "tensor_parallel_size": config.parallel_config.tensor_parallel_size,
    }


def _differences(compilation: Any, request: Any, pieces: dict[str, list[RawPiece]]) -> list[str]:
    """What still differs from the same engine on a CUDA machine."""
    from vllm.platforms import current_platform

    found = []
    if not current_platform.is_cuda():
        found.append(
            "The engine ran on a CPU: passes that vLLM registers only for CUDA (fusions with attention, all-reduce and "
            "quantisation; none is on by default for an unquantised BF16 model on one GPU) were not run."
        )
        found.append("CUDA graphs were not recorded; they replay the same kernels and move no rounding.")
    if request.combo_kernels:
        found.append("Combo kernels were chosen by rule, not by timing (benchmark_combo_kernel is off without a GPU).")
    else:
        found.append("Combo kernels were switched off; CUDA's default is on.")
    if any(piece.bucket != "dynamic" for of_piece in pieces.values() for piece in of_piece):
        found.append("In static shape buckets max_autotune was off: timing decides there on a GPU.")
    return found
