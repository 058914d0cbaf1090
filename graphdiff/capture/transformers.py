"""The training forward of a transformers model, gradients on, recorded below autograd while it runs.

The base model is recorded (up to its last hidden state): vLLM computes logits outside its compiled graph, so the
lm_head has no counterpart in an engine capture.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from graphdiff.capture.models import ModelRef
from graphdiff.errors import GraphdiffError
from graphdiff.program import Builder

NOT_CAPTURED = ("lm_head and the loss: the base model is recorded, up to its last hidden state",)


@dataclass
class TrainingCapture:
    """What was recorded: the program's builder, versions, the attention that ran; of compiled code its
    texts and Inductor's options that were set; notes for its reader."""

    builder: Builder
    versions: dict[str, str]
    mode: str
    target: str = "cpu"
    sources: dict[str, str] = field(default_factory=dict)
    inductor: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def load_model(model: ModelRef, *, attn: str, autocast: str | None) -> Any:
    """The CausalLM in train mode: BF16 weights, or FP32 master weights under autocast. Raises GraphdiffError."""
    try:
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging
    except ImportError as error:
        raise GraphdiffError(f"transformers cannot be imported ({error})", fix="pip install 'graphdiff-rl[transformers]'") from error
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    dtype = torch.float32 if autocast else torch.bfloat16
    try:
        loaded = AutoModelForCausalLM.from_pretrained(str(model.path), dtype=dtype, attn_implementation=attn, local_files_only=True)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise _not_loaded(error, model, attn) from error
    return loaded.train()


def _not_loaded(error: Exception, model: ModelRef, attn: str) -> GraphdiffError:
    """transformers' own reason; where it is the attention implementation (modeling_utils.py, `_sdpa_can_dispatch`), what to ask for instead."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    if attn != "eager" and "attention implementation" in reason:
        return GraphdiffError(f"transformers has no {attn} attention for this model: {reason.partition('. ')[0]}", where=str(model.name),
                              fix="take its eager attention: --attn eager")
    return GraphdiffError(f"transformers cannot load the model: {reason}", where=str(model.name),
                          fix="check the checkpoint with AutoModelForCausalLM.from_pretrained")


def record_training(model: ModelRef, tokens: list[int], positions: list[int], *, attn: str = "sdpa", autocast: str | None = None,
                    checkpointing: bool = False, prepare: Any = None) -> TrainingCapture:
    """Run one training forward on the probe and record it. `prepare(model)` may change the model first (a patch)."""
    import torch
    import transformers

    from graphdiff.lower.aten import Positions, Recorder

    causal = load_model(model, attn=attn, autocast=autocast)
    if checkpointing:
        causal.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if prepare is not None:
        prepare(causal)
    base = causal.base_model
    recorder = Recorder(Builder(), Positions(prefer=(_model_file(base),)))
    for name, tensor in [*causal.named_parameters(), *causal.named_buffers()]:
        recorder.announce(tensor, name, dynamic=False)
    ids, places = torch.tensor([tokens]), torch.tensor([positions])
    recorder.announce(ids, "input_ids", dynamic=True)
    recorder.announce(places, "positions", dynamic=False)
    # The names vLLM and the checkpoint use: `model.layers...`, whatever the wrapper calls its base.
    prefix = next(name for name, module in causal.named_modules() if module is base)
    with module_paths(base, prefix, recorder.module_stack), torch.enable_grad(), autocast_context(autocast), recorder:
        hidden = base(input_ids=ids, position_ids=places, use_cache=False).last_hidden_state
    if hidden.grad_fn is None:
        raise GraphdiffError("the forward ran without gradients", where=model.name, fix="a model with no trainable parameter is not training")
    recorder.builder.site = type(recorder.builder.site)()
    recorder.builder.output("hidden_states", recorder.elements(hidden.detach()))
    versions = {"torch": str(torch.__version__), "transformers": transformers.__version__}
    mode = "eager" + (f", autocast {autocast} over float32 weights" if autocast else "") + f", attention {attn}" + (
        ", checkpointing" if checkpointing else "")
    return TrainingCapture(recorder.builder, versions, mode, notes=list(recorder.remarks.notes()))


def _model_file(base: Any) -> str:
    import inspect

    return inspect.getfile(type(base))


@contextlib.contextmanager
def module_paths(base: Any, prefix: str, stack: list[str]) -> Iterator[None]:
    """Keep the path of the innermost running module on top of `stack`."""
    handles = []
    for name, module in base.named_modules():
        path = ".".join(part for part in (prefix, name) if part)
        handles.append(module.register_forward_pre_hook(lambda m, a, path=path: stack.append(path)))
        handles.append(module.register_forward_hook(lambda m, a, o: (stack.pop(), None)[1], always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        stack.clear()


def autocast_context(dtype: str | None) -> contextlib.AbstractContextManager:
    """CPU autocast to a dtype by name, or nothing."""
    import torch

    if dtype is None:
        return contextlib.nullcontext()
    return torch.autocast("cpu", dtype=getattr(torch, dtype))
