"""torch 2.13: Inductor's options, their types, and those that decide where its code rounds. Used by `torch_2_13` alone."""

from collections.abc import Mapping
from typing import Any

from torch._inductor import config, list_options

ROUNDING = (
    "emulate_precision_casts",
    "emulate_precision_casts_on_saved_tensors",
    "eager_numerics.division_rounding",
    "use_fast_math",
)
"""Switches that say by themselves that results change; others move roundings through what they fuse."""


def option_types() -> dict[str, Any]:
    """The annotation of every option, by its name as `torch.compile(options=...)` takes it."""
    return {name: config.get_type(name) for name in list_options() if name in config._config}


def rounding_options(patches: Mapping[str, Any]) -> dict[str, Any]:
    """Which of ROUNDING are not at their default under `patches`, whoever has set them: the user's file, or an engine."""
    now = {name: patches.get(name, config.get_config_copy().get(name)) for name in ROUNDING if name in config._config}
    return {name: value for name, value in now.items() if value != config._config[name].default}
