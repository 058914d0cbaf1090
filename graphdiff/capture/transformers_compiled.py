"""The training forward of a transformers model as torch.compile's Inductor makes it for this machine's CPU.

The forward of a graph with a backward: what is saved for the backward and used again is rounded
(`emulate_precision_casts_on_saved_tensors` is on by default), so it is another schedule than compiled inference.
"""

from __future__ import annotations

from typing import Any

from graphdiff.capture.models import ModelRef
from graphdiff.capture.transformers import TrainingCapture, autocast_context, load_model
from graphdiff.errors import GraphdiffError


def record_compiled_training(model: ModelRef, tokens: list[int], positions: list[int], *, attn: str = "sdpa",
                             autocast: str | None = None, prepare: Any = None, config_patches: dict[str, Any] | None = None) -> TrainingCapture:
    """Trace the base model with gradients, let Inductor write its forward, lower that on the probe.

    config_patches: Inductor's options.
    Raises GraphdiffError if it does not compile as one graph, or has a construct with no lowering.
    """
    import torch
    import transformers

    from graphdiff.capture.inductor.native import compile_by_inductor, watched_graph
    from graphdiff.capture.inductor.options import in_force

    causal = load_model(model, attn=attn, autocast=autocast)
    if prepare is not None:
        prepare(causal)
    base = causal.base_model
    prefix = next(name for name, module in causal.named_modules() if module is base)
    seen: list[tuple[Any, list[Any], Any]] = []
    results: list[Any] = []

    def backend(graph: Any, inputs: list[Any]) -> Any:
        seen.append((graph, list(inputs), watched_graph(graph, lambda: compile_by_inductor(graph, inputs, config_patches), False)))

        def run(*args: Any) -> Any:
            results[:] = graph.forward(*args)
            return tuple(results)

        return run

    ids, places = torch.tensor([tokens]), torch.tensor([positions])
    torch._dynamo.reset()
    try:
        with torch.enable_grad(), autocast_context(autocast):
            compiled = torch.compile(base, backend=backend, fullgraph=True, dynamic=False)
            hidden = compiled(input_ids=ids, position_ids=places, use_cache=False).last_hidden_state
    except torch._dynamo.exc.Unsupported as error:
        raise GraphdiffError("torch.compile cannot trace this model as one graph", where=model.name,
                             fix=f"avoid the graph break: {str(error).splitlines()[0]}") from error
    finally:
        torch._dynamo.reset()
    (graph, inputs, watched), = seen
    if watched.error is not None:
        raise watched.error
    place = next(i for i, r in enumerate(results) if r is hidden)
    builder = _lowered(graph, inputs, watched, place, prefix)
    versions = {"torch": str(torch.__version__), "transformers": transformers.__version__}
    mode = f"torch.compile, Inductor's C++ code, attention {attn}" + (f", autocast {autocast} over float32 weights" if autocast else "")
    return TrainingCapture(builder, versions, [], [], mode, "native", {"forward": watched.code.text}, in_force(config_patches or {}))


def _lowered(graph: Any, inputs: list[Any], watched: Any, place: int, prefix: str) -> Any:
    from graphdiff.capture.vllm.describe import described_inputs
    from graphdiff.lower.aten import is_float, raw_bits
    from graphdiff.lower.inductor.context import Context, SourcePosition
    from graphdiff.lower.inductor.function import Input, argument
    from graphdiff.lower.inductor_cpp import CppCall
    from graphdiff.program import Builder

    builder = Builder()
    sources = {name: SourcePosition(file=file, line=line) for name, (file, line) in watched.sources.items()}
    modules = {name: ".".join(p for p in (prefix, path) if p) for name, path in watched.modules.items()}
    arguments = []
    for item, value in zip(described_inputs(graph.graph, inputs)[0], inputs, strict=True):
        if item.kind == "size":
            arguments.append(int(value))
            continue
        dense = value.detach().contiguous()
        name = ".".join(p for p in (prefix if item.kind == "parameter" else "", item.path) if p) or item.name
        raw = raw_bits(dense) if is_float(dense) else dense.numpy()
        arguments.append(argument(builder, Input(name, raw, item.dtype, tuple(value.stride()), "input_ids" in item.path)))
    returned = CppCall(Context(builder, "forward", sources, modules), watched.code, "forward").run(arguments)
    builder.output("hidden_states", returned[watched.outputs[place].position].read())
    return builder
