"""vllm 0.32: engines with use_inductor_graph_partition, whose whole graph is one piece with attention inside it.

Used by `vllm_0_32` alone.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from graphdiff.errors import GraphdiffError

# Fusions that come on with graph partition and need kernels that a CPU build does not have. They match MLA's rotary
# embedding and quantised attention, nothing else.
CUDA_ONLY = ("fuse_rope_kvcache_cat_mla", "fuse_attn_quant")


def leave_out_cuda_passes(compilation: Any) -> None:
    """Before the pass manager is configured. Without graph partition these passes are off by default."""
    from vllm.platforms import current_platform

    if compilation.use_inductor_graph_partition and not current_platform.is_cuda():
        for name in CUDA_ONLY:
            if getattr(compilation.pass_config, name):
                setattr(compilation.pass_config, name, False)


@contextlib.contextmanager
def attention_inside(compilation: Any) -> Iterator[None]:
    """Around Inductor: attention and the cache update are left functional; another custom op is an error."""
    with cuda_functionalization_left_out(_only_attention):
        yield


def _only_attention(graph: Any) -> None:
    for node in graph.nodes:
        if "auto_functionalized" in str(node.target) and not str(node.args[0]).startswith("vllm."):
            raise GraphdiffError(
                f"no lowering for {node.args[0]}: the CPU build runs it where CUDA has kernels of its own",
                where="CUDA's code of a graph traced on a CPU",
                fix="capture a model without it (mixtures of experts have it), or use `graphdiff capture dumps` on a GPU's TORCH_TRACE",
            )


@contextlib.contextmanager
def cuda_functionalization_left_out(check: Callable[[Any], None] = lambda graph: None) -> Iterator[None]:
    """The pass that undoes functionalisation looks up CUDA's kernels as soon as a graph has any functional op. Where
    they are not there it does nothing but `check(graph)`; Inductor undoes what is left."""
    from vllm.compilation.passes.utility.fix_functionalization import FixFunctionalizationPass
    from vllm.platforms import current_platform

    if current_platform.is_cuda():
        yield
        return
    with mock.patch.object(FixFunctionalizationPass, "__call__", lambda self, graph: check(graph)):
        yield
