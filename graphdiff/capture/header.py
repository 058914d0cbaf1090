"""What a capture says about itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from graphdiff.capture.function import Recorded
from graphdiff.capture.vllm.program import piece_in
from graphdiff.store import CaptureInfo, KernelInfo, ModelInfo, ProbeTokens

if TYPE_CHECKING:
    from graphdiff.capture.models import ModelRef
    from graphdiff.capture.transformers import TrainingCapture
    from graphdiff.capture.vllm.raw import RawEngineCapture
    from graphdiff.capture.vllm.raw_native import RawNative

_GRAPH_NUMBER = re.compile(r"(?m)^# AOT ID: \['\d+_")
_CPP_KERNEL = re.compile(r"^(cpp_\w+) = async_compile", re.MULTILINE)
_KERNEL = re.compile(r"async_compile\.triton\('(\w+)'")


def training_header(model: ModelRef, recorded: TrainingCapture, tokens: list[int], positions: list[int]) -> CaptureInfo:
    """Header of a transformers capture."""
    from graphdiff.capture.transformers import NOT_CAPTURED

    return CaptureInfo(
        kind="transformers", model=ModelInfo(name=model.name, config=model.config, fingerprint=model.fingerprint, layers=model.layers),
        versions=recorded.versions, mode=recorded.mode, target=recorded.target, inductor=recorded.inductor,
        probe=ProbeTokens(tokens=tokens, positions=positions, seed=model.seed),
        kernels=[KernelInfo(name=name, code=code, kind=kind) for code, text in recorded.sources.items()
                 for kind, pattern in (("c++", _CPP_KERNEL), ("triton", _KERNEL)) for name in pattern.findall(text)],
        outputs=[o.name for o in recorded.builder.program.outputs], not_captured=list(NOT_CAPTURED),
        differences=_synthetic(model.synthetic, model.layers), notes=list(recorded.notes))


def engine_header(raw: RawEngineCapture, request: Any, tokens: list[int], positions: list[int]) -> CaptureInfo:
    """Header of a vLLM capture."""
    layers = int(request.options.get("layers") or raw.config.get("num_hidden_layers") or 0)
    bucket = request.options.get("bucket", "dynamic")
    kernels = [KernelInfo(name=name, code=piece, kind="triton") for piece, found in raw.pieces.items()
               for name in _KERNEL.findall(piece_in(piece, found, bucket).code.text)]
    return CaptureInfo(
        kind="vllm", model=ModelInfo(name=request.model or raw.model, config=request.options.get("config") or raw.config,
                                     fingerprint=request.fingerprint, layers=layers),
        versions=raw.versions, mode=raw.mode, target=raw.target, inductor=raw.inductor, shapes="dynamic" if bucket == "dynamic" else f"{bucket} token{'s' if bucket != 1 else ''}",
        probe=ProbeTokens(tokens=tokens, positions=positions, seed=int(request.options.get("seed") or 0)), outputs=["hidden_states"],
        differences=[*raw.differences, *_synthetic(bool(request.options.get("synthetic")), layers)],
        not_captured=list(raw.not_captured), kernels=kernels)


def native_header(raw: RawNative, request: Any, tokens: list[int], positions: list[int], notes: list[str]) -> CaptureInfo:
    """Header of a vLLM capture of this machine."""
    layers = int(request.options.get("layers") or raw.config.get("num_hidden_layers") or 0)
    launched = {code: dict.fromkeys(k.name for k in text.launches) for code, text in raw.codes().items()}
    return CaptureInfo(
        kind="vllm", model=ModelInfo(name=request.model or raw.model, config=request.options.get("config") or raw.config,
                                     fingerprint=request.fingerprint, layers=layers),
        versions=raw.versions, mode=raw.mode, target=raw.target, inductor=raw.inductor, shapes="dynamic" if launched else "",
        probe=ProbeTokens(tokens=tokens, positions=positions, seed=int(request.options.get("seed") or 0)), outputs=["hidden_states"],
        differences=[*raw.differences, *_synthetic(bool(request.options.get("synthetic")), layers)],
        not_captured=list(raw.not_captured), kernels=[KernelInfo(name=name, code=code, kind="c++") for code, names in launched.items() for name in names],
        notes=list(notes))


def function_header(spec: str, seed: int, recorded: Recorded) -> CaptureInfo:
    """Header of a function capture. The path is not kept: captures say the same on every machine."""
    import torch

    file, _, name = spec.rpartition(":")
    kernels = [KernelInfo(name=k, code=code, kind="triton") for code, text in recorded.sources.items() for k in _KERNEL.findall(text)]
    kernels += [KernelInfo(name=k, code=code, kind="c++") for code, text in recorded.sources.items() for k in _CPP_KERNEL.findall(text)]
    return CaptureInfo(
        kind="function", model=ModelInfo(name=f"{file.rsplit('/', 1)[-1]}:{name}"), versions={"torch": str(torch.__version__)},
        mode=recorded.mode, target=recorded.target, inductor=recorded.inductor, probe=ProbeTokens(seed=seed), outputs=[o.name for o in recorded.program.outputs],
        not_captured=list(recorded.not_captured), notes=list(recorded.notes), kernels=kernels)


def _synthetic(synthetic: bool, layers: int) -> list[str]:
    return [f"synthetic weights made from the config, {layers} layers"] if synthetic else []


def stable_sources(sources: dict[str, str]) -> dict[str, str]:
    """Generated code with its graphs numbered from 0: torch counts every graph that a process ever compiled."""
    return {name: _GRAPH_NUMBER.sub(f"# AOT ID: ['{i}_", text) for i, (name, text) in enumerate(sources.items())}
