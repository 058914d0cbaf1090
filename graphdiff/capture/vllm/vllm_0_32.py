"""Everything that graphdiff uses of the private API of vllm 0.32.

(With its parts `vllm_0_32_*`.) Interface: `install_hooks`, which reports to the session of this process
(`session.active()`), `start_engine`, and `forget_engine`. With no session every hook passes straight through.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

from graphdiff.capture.inductor import OutputCode, cuda_code_for_graph
from graphdiff.capture.vllm import session
from graphdiff.capture.vllm.describe import described_inputs, described_nodes
from graphdiff.capture.vllm import vllm_0_32_native as native
from graphdiff.capture.vllm.raw import RawPiece
from graphdiff.capture.vllm.vllm_0_32_partition import attention_inside, leave_out_cuda_passes
from graphdiff.capture.vllm.vllm_0_32_result import raw_capture, why_nothing
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
_installed = False
FunctorchOptions = Callable[[Any], contextlib.AbstractContextManager[None]]


def _functorch_options(manager: Any) -> contextlib.AbstractContextManager[None]:
    """What the engine sets of functorch while its CompilerManager compiles: for good, in this version."""
    from vllm.compilation.compiler_interface import set_functorch_config

    set_functorch_config()
    return contextlib.nullcontext()


def install_hooks(functorch_options: FunctorchOptions = _functorch_options) -> None:
    """Wrap the engine's functions, once per process. `functorch_options(manager)`: the later versions' way."""
    global _installed
    if _installed:
        return
    _installed = True
    _keep_compile_mode()
    _keep_plain_matmuls()
    _watch_backend()
    _watch_pieces(functorch_options)
    _watch_aot_cache()
    native.install()
    _watch_end_of_start()


def start_engine(path: str, *, compile_sizes: Sequence[int] = (), graph_partition: bool = False,
                 inductor: dict[str, Any] | None = None, **engine_options: Any) -> Any:
    """Start an engine on the checkpoint at `path` in the mode that is default on CUDA; returns it.

    While a native capture is under way: in this machine's default mode, or eager.
    """
    from vllm import LLM
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    compilation: dict[str, Any] = {"inductor_compile_config": dict(inductor)} if inductor else {}
    if graph_partition:
        compilation["use_inductor_graph_partition"] = True
    if native.is_native():
        options = {"enforce_eager": native.is_native("eager"), "compilation_config": compilation}
    else:
        options = {"compilation_config": {"mode": 3, "compile_sizes": list(compile_sizes), **compilation}}
    with _no_binding(), native.forgotten_weights():
        return LLM(path, **{**ENGINE, **options, **engine_options})


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
        if session.active() is not None and not native.is_native() and asked == CompilationMode.VLLM_COMPILE:
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
        if session.active() is None or native.is_native():
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


def _is_first_rank(vllm_config: Any) -> bool:
    """Of several workers one writes the capture."""
    return vllm_config.parallel_config.rank == 0


def _watch_backend() -> None:
    """Around the compilation of a whole graph: its real inputs are at hand, and all its pieces afterwards."""
    from vllm.compilation.backends import VllmBackend

    call = VllmBackend.__call__

    def watched(self: Any, graph: Any, example_inputs: Sequence[Any]) -> Any:
        global _collector
        current = session.active()
        if current is None or native.is_native() or current.finished or not _is_first_rank(self.vllm_config):
            return call(self, graph, example_inputs)
        _collector = _Collector(self)
        leave_out_cuda_passes(self.compilation_config)
        try:
            inputs, parameters = described_inputs(graph.graph, example_inputs)
            with _submodules_kept(self) as kept:
                result = call(self, graph, example_inputs)
            if current.finished:
                return result  # the capture of a piece failed, in an engine that goes on
            raw = raw_capture(self, kept, _collector.pieces, current.request, inputs, parameters)
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


def _watch_pieces(functorch_options: FunctorchOptions) -> None:
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
                with functorch_options(self):
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
    from vllm.compilation.compiler_interface import set_inductor_config

    request = session.active().request
    options = {**options, "combo_kernels": request.combo_kernels}
    set_inductor_config(options, compile_range)
    with manager.compile_context(compile_range), attention_inside(manager.compilation_config):
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
        if current is not None and _is_first_rank(self.vllm_config):
            current.failed((native.why_nothing if native.is_native() else why_nothing)(self.vllm_config))
        return result

    WorkerWrapperBase.initialize_from_config = watched
