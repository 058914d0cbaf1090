"""Everything that graphdiff uses of the private API of vllm 0.32.

(With its parts `vllm_0_32_*`.) Interface: `install_hooks`, which reports to the session of this process
(`session.active()`), `start_engine`, and `forget_engine`. With no session every hook passes straight through.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from graphdiff.capture.models.reference import read_config
from graphdiff.capture.vllm import session
from graphdiff.capture.vllm import vllm_0_32_native as native
from graphdiff.capture.vllm.vllm_0_32_pieces import FunctorchOptions, watch_pieces
from graphdiff.capture.vllm.vllm_0_32_result import why_nothing
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
    watch_pieces(functorch_options)
    _watch_aot_cache()
    native.install()
    _watch_end_of_start()


def start_engine(path: str, *, compile_sizes: Sequence[int] = (), graph_partition: bool = False,
                 inductor: dict[str, Any] | None = None, **engine_options: Any) -> Any:
    """Start an engine on the checkpoint at `path` in the mode that is default on CUDA; returns it.

    While a native capture is under way: in the mode that it asks for.
    """
    from vllm import LLM
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    compilation: dict[str, Any] = {"inductor_compile_config": dict(inductor)} if inductor else {}
    if graph_partition:
        compilation["use_inductor_graph_partition"] = True
    if native.is_whole():
        options = {"enforce_eager": native.is_native("eager"), "compilation_config": compilation}
    else:
        options = {"compilation_config": {"mode": 3, "compile_sizes": list(compile_sizes), **compilation}}
    with _no_binding(), native.forgotten_weights():
        return LLM(path, **{**ENGINE, "max_model_len": _model_length(path), **options, **engine_options})


def _model_length(path: str) -> int:
    """Short, but on the config's own side of the length at which LongRoPE changes its factors: vLLM chooses them once, by
    max_model_len (model_executor/layers/rotary_embedding/phi3_long_rope_scaled_rope.py)."""
    config = read_config(Path(path) / "config.json")
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    original = config.get("original_max_position_embeddings") or rope.get("original_max_position_embeddings")
    if "long_factor" in rope and isinstance(original, int) and config.get("max_position_embeddings", 0) > original:
        return max(ENGINE["max_model_len"], original + 1)
    return ENGINE["max_model_len"]


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
    """The CPU platform swaps VLLM_COMPILE for another mode and adds options of its own; put back the mode, and for
    CUDA its options."""
    from vllm.config import CompilationMode
    from vllm.platforms.cpu import CpuPlatform

    check = CpuPlatform.check_and_update_config.__func__

    def check_and_keep(cls: type, vllm_config: Any) -> None:
        compilation = vllm_config.compilation_config
        asked, wrap = compilation.mode, compilation.ir_enable_torch_wrap
        backend, options = compilation.backend, dict(compilation.inductor_compile_config)
        check(cls, vllm_config)
        if session.active() is None or asked != CompilationMode.VLLM_COMPILE:
            return
        if native.is_whole():
            return
        compilation.mode, compilation.ir_enable_torch_wrap = asked, wrap
        compilation.backend = backend or "inductor"
        compilation.compile_sizes = compilation.compile_sizes or []
        if not native.is_native():
            compilation.inductor_compile_config = options

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
        if current is not None and self.vllm_config.parallel_config.rank == 0:
            current.failed((native.why_nothing if native.is_whole() else why_nothing)(self.vllm_config))
        return result

    WorkerWrapperBase.initialize_from_config = watched
