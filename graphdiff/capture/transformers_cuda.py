"""The training forward of a transformers model, and its backward, as torch.compile's Inductor makes them for CUDA, with no GPU.

The forward of a graph with a backward: what is saved for the backward and used again is rounded, so it is another
schedule than compiled inference. AOTAutograd traces on the CPU (no autograd runs on a device that is not there).
"""

from __future__ import annotations

from typing import Any

from graphdiff.capture.compiled import MADE_UP, made_up_gradients, refuse_cpu_attention
from graphdiff.capture.models import ModelRef
from graphdiff.capture.transformers import TrainingCapture, load_model
from graphdiff.capture.transformers_compiled import keep_gradients


def record_cuda_training(model: ModelRef, tokens: list[int], positions: list[int], target: str, *, attn: str = "eager",
                         backward: bool = False, prepare: Any = None, config_patches: dict[str, Any] | None = None) -> TrainingCapture:
    """Trace the base model with gradients, let Inductor write its forward for `target`, lower that on the probe.

    backward: that too, in the same program, on a made-up gradient of the last hidden state; outputs are `hidden_states`
    and `grad_PARAMETER` of each. config_patches: Inductor's options.
    Raises GraphdiffError if it does not compile as one graph, or has a construct with no lowering.
    """
    import torch
    import transformers

    from graphdiff.capture.inductor import cuda_code_for_function
    from graphdiff.capture.inductor.options import in_force

    causal = load_model(model, attn=attn, autocast=None)
    if prepare is not None:
        prepare(causal)
    base = causal.base_model
    prefix = next(name for name, module in causal.named_modules() if module is base)

    class Forward(torch.nn.Module):
        """The base model, called with what the probe gives; its parameters keep their names."""

        def __init__(self) -> None:
            super().__init__()
            setattr(self, prefix, base)

        def forward(self, ids: Any, places: Any) -> Any:
            return getattr(self, prefix)(input_ids=ids, position_ids=places, use_cache=False).last_hidden_state

    inputs = torch.tensor([tokens]), torch.tensor([positions])
    code = cuda_code_for_function(Forward(), inputs, target, training=True, config_patches=config_patches)
    if backward:
        refuse_cpu_attention(code.backward.text, model.name)
    builder = _lowered(code, inputs, backward)
    versions = {"torch": str(torch.__version__), "transformers": transformers.__version__}
    mode = f"torch.compile with gradients, Inductor code for {target}, forward{' and backward' if backward else ''}, attention {attn}"
    texts = {"forward": code.text, **({"backward": code.backward.text} if backward else {})}
    return TrainingCapture(builder, versions, mode, target, texts, in_force(config_patches or {}), [MADE_UP] if backward else [])


def _lowered(code: Any, inputs: tuple[Any, Any], backward: bool) -> Any:
    from graphdiff.lower.aten import is_float, raw_bits
    from graphdiff.lower.inductor.context import Context, SourcePosition
    from graphdiff.lower.inductor.function import Input, argument, run_forward_and_backward
    from graphdiff.lower.inductor.output_code import Call, OutputCode
    from graphdiff.program import Builder

    builder, arguments, names = Builder(), [], []
    sources = {name: SourcePosition(file=file, line=line) for name, (file, line) in code.sources.items()}
    for item in code.inputs:
        value = inputs[item.argument] if item.argument is not None else item.value
        names.append(item.parameter or item.name)
        if item.kind == "size":
            arguments.append(int(value))
            continue
        dense = value.detach().contiguous()
        raw = raw_bits(dense) if is_float(dense) else dense.numpy()
        dtype = str(value.dtype).removeprefix("torch.")
        arguments.append(argument(builder, Input(item.parameter or item.name, raw, dtype, tuple(value.stride()), item.argument == 0)))
    forward = Call(Context(builder, "forward", sources, code.modules), OutputCode(code.text, "forward", code.kernel_sources))
    (result,) = [o for o in code.outputs if o.kind == "output"]
    if not backward:
        builder.output("hidden_states", forward.run(arguments)[result.position].read())
        return builder
    back = Call(Context(builder, "backward", sources, code.modules), OutputCode(code.backward.text, "backward", code.backward.kernel_sources))
    tangents = [argument(builder, t) for t in made_up_gradients(code.backward.text, code.backward.inputs)]
    run_forward_and_backward(builder, forward, back, arguments, tangents, names)
    keep_gradients(builder, f"output_{result.position}")
    return builder
