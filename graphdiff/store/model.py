"""A capture: one side, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from graphdiff import __version__
from graphdiff.probe.types import ProbeData
from graphdiff.program import Program
from graphdiff.store.container import VERSION


class ModelInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What was captured: a model's name and config (JSON), the checkpoint's fingerprint, how many layers."""

    name: str = ""
    config: dict[str, Any] = {}
    fingerprint: str = ""
    layers: int = 0


class ProbeTokens(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The tokens the probe ran on. Both sides of a comparison need the same."""

    tokens: list[int] = []
    positions: list[int] = []
    seed: int = 0


class KernelInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A kernel that ran: its name, the generated file it is in (a key of `Capture.sources`), triton/cpp/extern/aten."""

    name: str
    code: str = ""
    kind: str = ""
    source: str | None = None


class CaptureInfo(msgspec.Struct, kw_only=True):
    """Everything a capture says about itself besides its program. `shapes` names the shape bucket."""

    kind: Literal["vllm", "transformers", "function", "dumps"]
    format: int = VERSION
    graphdiff: str = __version__
    model: ModelInfo = msgspec.field(default_factory=ModelInfo)
    versions: dict[str, str] = {}
    mode: str = ""
    target: str = ""
    shapes: str = ""
    inductor: dict[str, bool | int | float | str | None] = {}
    """Inductor's options that were given, and others in force that decide where its code rounds."""
    probe: ProbeTokens = msgspec.field(default_factory=ProbeTokens)
    outputs: list[str] = []
    differences: list[str] = []
    """How this capture differs from what runs in production (eager attention stand-in, synthetic weights ...)."""
    not_captured: list[str] = []
    notes: list[str] = []
    kernels: list[KernelInfo] = []


@dataclass
class Capture:
    """header, program, what the probe saw (if it ran), and the texts of generated code by name.

    A capture that was read decompresses index arrays, leaf bits and sources on first access.
    """

    header: CaptureInfo
    program: Program
    probe: ProbeData | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
