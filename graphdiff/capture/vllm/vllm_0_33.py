"""vllm 0.33, which pins torch 2.14: as 0.32 but for one function (docs/versions.md tells how that was checked).

`set_functorch_config` is a context there, and asks whether this module may be compiled ahead of time.
"""

import contextlib
from typing import Any

from graphdiff.capture.vllm import vllm_0_32
from graphdiff.capture.vllm.vllm_0_32 import forget_engine, start_engine


def install_hooks() -> None:
    """Wrap the engine's functions, once per process."""
    vllm_0_32.install_hooks(_functorch_options)


def _functorch_options(manager: Any) -> contextlib.AbstractContextManager[None]:
    from vllm.compilation.compiler_interface import set_functorch_config

    return set_functorch_config(manager.use_aot_compile)


__all__ = ["forget_engine", "install_hooks", "start_engine"]
