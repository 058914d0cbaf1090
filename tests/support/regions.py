"""Regions on numbers of a kind (graphdiff.verify.inputs), and their gradients."""

from __future__ import annotations

from typing import Any

from graphdiff.emit import EmittedRegion, RegionIR
from graphdiff.verify.inputs import NUMBERS, arguments_of, by_program, numbers, tensors_of
from graphdiff.verify.kernels import differing

__all__ = ["NUMBERS", "arguments_of", "by_program", "differing", "gradients_for", "numbers", "reference_gradients", "tensors_of"]


def gradients_for(emitted: EmittedRegion, inputs: tuple[Any, ...], seed: int = 0) -> tuple[Any, ...]:
    """Random gradients of an operator's outputs."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    shapes = {t.name: x.shape for t, x in zip(emitted.signature.inputs, inputs)}
    rows = next(x.shape for t, x in zip(emitted.signature.inputs, inputs) if t.shape in ("rows", "heads"))
    return tuple(torch.randn(shapes.get(t.name.removesuffix("_out"), rows), generator=generator).to(getattr(torch, t.dtype))
                 for t in emitted.signature.outputs)


def reference_gradients(region: RegionIR, emitted: EmittedRegion, inputs: tuple[Any, ...], gradients: tuple[Any, ...]) -> list[Any]:
    """FP64 gradients without any rounding, by autograd, of every input that is differentiable (None for the others)."""
    import torch

    from graphdiff.emit.torch_reference import evaluate, values_of

    wide = {t.name: x.detach().double().requires_grad_() for t, x in zip(emitted.signature.inputs, inputs)}
    given = {t.name: g.double() for t, g in zip(emitted.signature.outputs, gradients)}
    loss, carried = 0, None
    for part in region.parts:
        tensors = {i.name: wide[part.bind[i.name]] for i in part.inputs}
        for name, out in evaluate(part, tensors, torch.float64, rounding=False).items():
            loss = loss + (out * given[part.bind[name]]).sum()
        if part.carries >= 0:
            loss = loss + (values_of(part, tensors, torch.float64, [part.carries])[part.carries] * given["carry"]).sum()
        if part.carried >= 0:
            carried = next(part.bind[part.lanes_of_load(v)[0]] for v in part.needed([part.carried]) if part.values[v].op == "load")
    made = dict(zip(wide, torch.autograd.grad(loss, list(wide.values()), allow_unused=True)))
    if carried:  # what autograd gives each addend is what the operator hands to the carried sum
        made["carry"] = made[carried]
    return [made[t.name] if t.differentiable else None for t in emitted.signature.inputs]
