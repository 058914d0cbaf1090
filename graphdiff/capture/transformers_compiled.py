"""The training of a transformers model as torch.compile's Inductor makes it for this machine's CPU: forward, backward.

What is saved for the backward is stored in the model's format, and the backward reads it so; the forward itself reads
what it has just stored from the register, unless another loop reads it (docs/native.md).
"""

from __future__ import annotations

from typing import Any

from graphdiff.capture.compiled import MADE_UP, made_up_gradients
from graphdiff.capture.function import opaque_in
from graphdiff.capture.models import ModelRef
from graphdiff.capture.transformers import TrainingCapture, autocast_context, load_model
from graphdiff.errors import GraphdiffError


def check_backward(backward: bool, compile: bool) -> None:
    """Raises GraphdiffError if a backward is wanted that cannot be recorded in this mode."""
    if backward and not compile:
        raise GraphdiffError("the backward of a model is captured as it is compiled only", where="--backward", fix="add --compile")


def record_compiled_training(model: ModelRef, tokens: list[int], positions: list[int], *, attn: str = "sdpa",
                             autocast: str | None = None, backward: bool = False, prepare: Any = None,
                             config_patches: dict[str, Any] | None = None) -> TrainingCapture:
    """Trace the base model with gradients, let Inductor write its forward, lower that on the probe.

    backward: that too, in the same program, on a made-up gradient of the last hidden state; outputs are `hidden_states`
    and `grad_PARAMETER` of each. config_patches: Inductor's options. Raises GraphdiffError if it does not compile as one
    graph, or has a construct with no lowering.
    """
    import torch
    import transformers

    from graphdiff.capture.inductor.native import compile_by_inductor, watched_graph
    from graphdiff.capture.inductor.options import in_force
    from graphdiff.capture.inductor.torch_2_13_trace import no_one_graph, quiet_caches

    causal = load_model(model, attn=attn, autocast=autocast)
    if prepare is not None:
        prepare(causal)
    base = causal.base_model
    prefix = next(name for name, module in causal.named_modules() if module is base)
    seen: list[tuple[Any, list[Any], Any]] = []
    results: list[Any] = []

    def backend(graph: Any, inputs: list[Any]) -> Any:
        compile_it = lambda: compile_by_inductor(graph, inputs, config_patches)  # noqa: E731
        seen.append((graph, list(inputs), watched_graph(graph, compile_it, backward=backward)))

        def run(*args: Any) -> Any:
            results[:] = graph.forward(*args)
            return tuple(results)

        return run

    ids, places = torch.tensor([tokens]), torch.tensor([positions])
    torch._dynamo.reset()
    try:
        with torch.enable_grad(), autocast_context(autocast), quiet_caches():
            compiled = torch.compile(base, backend=backend, fullgraph=True, dynamic=False)
            hidden = compiled(input_ids=ids, position_ids=places, use_cache=False).last_hidden_state
    except (torch._dynamo.exc.Unsupported, torch._dynamo.exc.UserError, torch._dynamo.exc.BackendCompilerFailed) as error:
        if isinstance(error, torch._dynamo.exc.BackendCompilerFailed) and "data-dependent" not in str(error):
            raise
        raise no_one_graph(error, "model", model.name) from error
    finally:
        torch._dynamo.reset()
    (graph, inputs, watched), = seen
    if watched.error is not None:
        raise watched.error
    place = next(i for i, r in enumerate(results) if r is hidden)
    builder = _lowered(graph, inputs, watched, place, prefix)
    versions = {"torch": str(torch.__version__), "transformers": transformers.__version__}
    mode = f"torch.compile with gradients, Inductor's C++ code, forward{' and backward' if backward else ''}, attention {attn}"
    mode += f", autocast {autocast} over float32 weights" if autocast else ""
    options = in_force(config_patches or {})
    if not backward:
        return TrainingCapture(builder, versions, mode, "native", {"forward": watched.code.text}, options)
    texts = {"forward": watched.code.text, "backward": watched.backward.code.text}
    return TrainingCapture(builder, versions, mode, "native", texts, options, [*opaque_in(builder.program), MADE_UP])


def _lowered(graph: Any, inputs: list[Any], watched: Any, place: int, prefix: str) -> Any:
    from graphdiff.lower.inductor.context import Context, SourcePosition
    from graphdiff.lower.inductor_cpp import CppCall
    from graphdiff.program import Builder

    builder = Builder()
    sources = {name: SourcePosition(file=file, line=line) for name, (file, line) in watched.sources.items()}
    modules = {name: ".".join(p for p in (prefix, path) if p) for name, path in watched.modules.items()}
    names, arguments = _arguments(builder, graph, inputs, prefix)
    forward = CppCall(Context(builder, "forward", sources, modules), watched.code, "forward")
    result = watched.outputs[place].position
    if watched.backward is None:
        builder.output("hidden_states", forward.run(arguments)[result].read())
    else:
        backward = CppCall(Context(builder, "backward", sources, modules), watched.backward.code, "backward")
        _both(builder, forward, backward, watched.backward, arguments, names)
        keep_gradients(builder, f"output_{result}")
    return builder


def _both(builder: Any, forward: Any, backward: Any, code: Any, arguments: list[Any], names: list[str]) -> None:
    from graphdiff.lower.inductor.function import argument, run_forward_and_backward

    tangents = [argument(builder, t) for t in made_up_gradients(code.code.text, code.inputs)]
    run_forward_and_backward(builder, forward, backward, arguments, tangents, names)


def keep_gradients(builder: Any, result: str) -> None:
    """Of the outputs, the last hidden state and the gradients."""
    from graphdiff.program import Output

    kept = builder.program.outputs
    kept[:] = [Output("hidden_states", o.operand) if o.name == result else o for o in kept if o.name == result or o.name.startswith("grad_")]


def _arguments(builder: Any, graph: Any, inputs: list[Any], prefix: str) -> tuple[list[str], list[Any]]:
    """What `call(args)` takes, and its names."""
    from graphdiff.capture.vllm.describe import described_inputs
    from graphdiff.lower.aten import is_float, raw_bits
    from graphdiff.lower.inductor.function import Input, argument

    names, arguments = [], []
    for item, value in zip(described_inputs(graph.graph, inputs)[0], inputs, strict=True):
        name = ".".join(p for p in (prefix if item.kind == "parameter" else "", item.path) if p) or item.name
        names.append(name)
        if item.kind == "size":
            arguments.append(int(value))
            continue
        dense = value.detach().contiguous()
        raw = raw_bits(dense) if is_float(dense) else dense.numpy()
        arguments.append(argument(builder, Input(name, raw, item.dtype, tuple(value.stride()), "input_ids" in item.path)))
    return names, arguments
