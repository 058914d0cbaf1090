"""vllm 0.32: the pieces of a graph that VLLM_COMPILE splits at attention, as CUDA's code or as this machine's.

Used by `vllm_0_32` alone.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from graphdiff.capture.inductor import OutputCode, cuda_code_for_graph
from graphdiff.capture.inductor.native import watched_graph
from graphdiff.capture.vllm import session
from graphdiff.capture.vllm import vllm_0_32_native as native
from graphdiff.capture.vllm.describe import described_inputs, described_nodes
from graphdiff.capture.vllm.raw import RawPiece
from graphdiff.capture.vllm.raw_native import RawNativePiece
from graphdiff.capture.vllm.vllm_0_32_partition import attention_inside, cuda_functionalization_left_out, leave_out_cuda_passes
from graphdiff.capture.vllm.vllm_0_32_result import raw_capture
from graphdiff.errors import GraphdiffError

FunctorchOptions = Callable[[Any], contextlib.AbstractContextManager[None]]


def watch_pieces(functorch_options: FunctorchOptions) -> None:
    """Wrap what compiles a whole graph and what compiles one piece of it."""
    _watch_backend()
    _watch_compiler(functorch_options)


class _Pieces:
    """The pieces of the graph that a backend is compiling, by name and shape bucket."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.found: dict[str, list[Any]] = {}

    def name(self, index: int) -> str:
        """The submodule that is piece number `index`."""
        return [item.submod_name for item in self.backend.piecewise_graphs if not item.is_splitting_graph][index]

    def add_cuda(self, index: int, compile_range: Any, codes: list[OutputCode]) -> None:
        name = self.name(index)
        if len(codes) != 1:
            raise GraphdiffError(
                f"Inductor split piece {name} into {len(codes)} graphs",
                where="use_inductor_graph_partition",
                fix="switch it off for the capture",
            )
        bucket = compile_range.start if compile_range.is_single_size() else "dynamic"
        self.found.setdefault(name, []).append(RawPiece(name, codes[0], bucket, (compile_range.start, compile_range.end)))
        self.found[name].sort(key=lambda p: (p.bucket != "dynamic", p.tokens))

    def add_native(self, index: int, compile_range: Any, seen: Any) -> None:
        if seen.error is not None:
            raise seen.error
        name = self.name(index)
        if not compile_range.is_single_size():  # of somebody's engine with compile_sizes: the schedule for any number
            piece = RawNativePiece(name, seen.code, seen.outputs, seen.sources, seen.modules, seen.runs)
            self.found.setdefault(name, []).append(piece)


_pieces: _Pieces | None = None


def _wants_pieces(current: Any) -> bool:
    return current is not None and not current.finished and not native.is_whole()


def _watch_backend() -> None:
    """Around the compilation of a whole graph: its real inputs are at hand, and all its pieces afterwards."""
    from vllm.compilation.backends import VllmBackend

    call = VllmBackend.__call__

    def watched(self: Any, graph: Any, example_inputs: Sequence[Any]) -> Any:
        global _pieces
        current = session.active()
        if not _wants_pieces(current) or self.vllm_config.parallel_config.rank != 0:  # of several workers one writes
            return call(self, graph, example_inputs)
        _pieces = _Pieces(self)
        leave_out_cuda_passes(self.compilation_config)
        try:
            inputs, parameters = described_inputs(graph.graph, example_inputs)
            with _submodules_kept(self) as kept:
                result = call(self, graph, example_inputs)
            if current.finished:
                return result  # the capture of a piece failed, in an engine that goes on
            if native.is_native():
                raw = native.raw_pieces(self, kept, _pieces.found, inputs, parameters, example_inputs)
            else:
                raw = raw_capture(self, kept, _pieces.found, current.request, inputs, parameters)
        finally:
            _pieces = None
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


def _watch_compiler(functorch_options: FunctorchOptions) -> None:
    """Around the compilation of one piece for one range of token counts."""
    from vllm.compilation.backends import CompilerManager

    compile_piece = CompilerManager.compile

    @functools.wraps(compile_piece)
    def watched(
        self: Any, graph: Any, example_inputs: Sequence[Any], additional_inductor_config: dict[str, Any],
        compilation_config: Any, compile_range: Any, graph_index: int = 0, **kwargs: Any,
    ) -> Any:  # fmt: skip
        def go_on() -> Any:
            return compile_piece(
                self, graph, example_inputs, additional_inductor_config, compilation_config,
                compile_range=compile_range, graph_index=graph_index, **kwargs,
            )  # fmt: skip

        current = session.active()
        if _pieces is None or not _wants_pieces(current):
            return go_on()
        if native.is_native():
            return _watched_natively(current, go_on, graph, compile_range, graph_index)
        try:
            with functorch_options(self):
                codes = _cuda_code(self, graph, example_inputs, additional_inductor_config, compile_range)
            _pieces.add_cuda(graph_index, compile_range, codes)
        except Exception as error:
            current.failed(error)
        return graph if current.request.stop else go_on()  # nobody will run it, or the engine as it is

    CompilerManager.compile = watched


def _cuda_code(
    manager: Any, graph: Any, example_inputs: Sequence[Any], options: dict[str, Any], compile_range: Any
) -> list[OutputCode]:
    """The CUDA code of one piece, with the options and passes that the engine gives Inductor."""
    from vllm.compilation.compiler_interface import set_inductor_config

    request = session.active().request
    options = {**options, "combo_kernels": request.combo_kernels}
    set_inductor_config(options, compile_range)
    with manager.compile_context(compile_range), attention_inside(manager.compilation_config):
        return cuda_code_for_graph(graph, example_inputs, options, request.target)


def _watched_natively(current: Any, go_on: Callable[[], Any], graph: Any, compile_range: Any, index: int) -> Any:
    """What the engine itself compiles for this machine."""
    with cuda_functionalization_left_out():
        seen = watched_graph(graph, go_on, load=not current.request.stop, watch=native.is_watched())
    try:
        _pieces.add_native(index, compile_range, seen)
    except Exception as error:
        current.failed(error)
    return seen.compiled
