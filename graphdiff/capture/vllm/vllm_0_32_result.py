"""vllm 0.32: what is told about an engine, captured or not. Used by `vllm_0_32` alone."""

import importlib.metadata
import json
import platform
from pathlib import Path
from typing import Any

from graphdiff.capture.models.reference import fingerprint, read_config
from graphdiff.capture.vllm.raw import RawEngineCapture, RawPiece
from graphdiff.capture.vllm.versions import installed_version
from graphdiff.capture.vllm.vllm_0_32_attention import attention_layers
from graphdiff.errors import GraphdiffError

NOT_CAPTURED = [
    "lm_head, the logits processor and the sampler run outside the compiled graph and were not captured.",
    "Attention and the KV cache update run as opaque ops between the pieces; what they round inside is not captured.",
]


def raw_capture(
    backend: Any, kept: dict[str, Any], pieces: dict[str, list[RawPiece]], request: Any, inputs: list, parameters: dict
) -> RawEngineCapture:
    """The capture of what `backend` has compiled."""
    from torch._inductor.compile_fx import graph_returns_tuple

    config, compilation = backend.vllm_config, backend.compilation_config
    items = backend.piecewise_graphs
    return RawEngineCapture(
        model=request.model or str(config.model_config.model),
        fingerprint=request.fingerprint or fingerprint_of(str(config.model_config.model)),
        target=request.target,
        mode=compilation.mode.name + (", graph partition" if compilation.use_inductor_graph_partition else ""),
        versions=versions(),
        config=json.loads(config.model_config.hf_config.to_json_string(use_diff=False)),
        compile_config=compile_config(config, request),
        top=kept["top"],
        pieces=pieces,
        splitting={item.submod_name: kept[item.submod_name] for item in items if item.is_splitting_graph},
        returns_tuple={item.submod_name: graph_returns_tuple(item.graph) for item in items},
        inputs=inputs,
        parameters=parameters,
        attention=attention_layers(config),
        inductor=inductor_options(config, request),
        differences=_differences(request, pieces),
        not_captured=list(NOT_CAPTURED),
    )


def fingerprint_of(model: str) -> str:
    """The fingerprint of the checkpoint that somebody's engine runs, where it is a folder."""
    config = Path(model) / "config.json"
    return fingerprint(Path(model), read_config(config)) if config.is_file() else ""


def versions() -> dict[str, str]:
    others = {name: importlib.metadata.version(name) for name in ("torch", "triton", "transformers")}
    return {"vllm": installed_version(), **others, "python": platform.python_version()}


def compile_config(config: Any, request: Any) -> dict[str, Any]:
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


def inductor_options(config: Any, request: Any) -> dict[str, Any]:
    """What was given, and what an engine of one's own sets in inductor_compile_config that decides where code rounds."""
    from graphdiff.capture.inductor.options import in_force, rounding_in

    return in_force({**rounding_in(config.compilation_config.inductor_compile_config), **request.inductor})


def _differences(request: Any, pieces: dict[str, list[RawPiece]]) -> list[str]:
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
        found.append("In static shape buckets max_autotune and shape_padding were off: timing decides there on a GPU.")
    return found


def why_nothing(vllm_config: Any) -> GraphdiffError:
    """Why an engine that has started compiled nothing that can be captured, and what to set."""
    from vllm.compilation.counter import compilation_counter
    from vllm.config import CompilationMode

    compilation = vllm_config.compilation_config
    mode = compilation.mode
    where = f"mode {getattr(mode, 'name', mode)}"
    if vllm_config.model_config.enforce_eager:
        why, fix = "the engine runs eagerly", "leave out enforce_eager / --enforce-eager"
    elif mode == CompilationMode.NONE and _breakable_cudagraph(vllm_config):
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


def _breakable_cudagraph(vllm_config: Any) -> bool:
    """vllm 0.28 has no such default, and no such question."""
    asked = getattr(vllm_config, "_uses_breakable_cudagraph_by_default", None)
    return asked is not None and asked()
