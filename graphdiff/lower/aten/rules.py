"""Finds the rule of an ATen op and applies it: movement, arithmetic, composite, gradient, or opaque by a rule of rules/ops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from graphdiff.lower.aten import arithmetic, complex_ops, composite, gradients, grouped, movement, scattered, special
from graphdiff.lower.aten.promotion import narrowed
from graphdiff.program import Elements

if TYPE_CHECKING:
    from graphdiff.lower.aten.recorder import Recorder


def lower(recorder: Recorder, func: Any, args: tuple, kwargs: dict, out: Any, written: list[torch.Tensor]) -> None:
    """Record what `func` made: bind its fresh outputs, or write its in-place result.

    Raises GraphdiffError for an ATen op with no rule, naming op and source line.
    """
    name = func._overloadpacket.__name__
    custom = recorder.custom_rules.get(f"{func.namespace}.{name}")
    if custom is not None:
        custom(recorder, _by_name(func, args, kwargs), out)
        return
    if func.namespace not in ("aten", "prims"):
        _opaque(recorder, func, args, kwargs, out, written)
        return
    base = name[:-1] if written and name.endswith("_") and not name.endswith("__") else name
    if movement.apply(recorder, func, base, args, kwargs, out, written):
        return
    rule = _rule(recorder, base, args, kwargs, out)
    recorder.narrowed = narrowed(recorder, base, args, kwargs)
    results = rule(recorder, func, args, kwargs, out)
    recorder.narrowed = {}
    _finish(recorder, results, out, written, stored=base in scattered.RULES)


def _rule(recorder: Recorder, base: str, args: tuple, kwargs: dict, out: Any) -> Any:
    """The rule of an op; a complex one never falls back on the real rule, which would work part by part."""
    if any(isinstance(t, torch.Tensor) and t.is_complex() for t in tree_leaves((args, kwargs, out))):
        rule, why = complex_ops.RULES.get(base), "of complex numbers"
    else:
        rule, why = next((rules[base] for rules in _RULES if base in rules), None), ""
    if rule is None:
        raise recorder.refused(why)
    return rule


_RULES = (arithmetic.RULES, special.RULES, composite.RULES, scattered.RULES, gradients.RULES, grouped.RULES)
for _i, _one in enumerate(_RULES):
    for _other in _RULES[:_i]:
        assert not set(_one) & set(_other), set(_one) & set(_other)


def _by_name(func: Any, args: tuple, kwargs: dict) -> dict[str, Any]:
    """The arguments of a call by their names in the op's schema, defaults filled in."""
    named = {}
    for i, argument in enumerate(func._schema.arguments):
        given = args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value)
        named[argument.name] = given
    return named


def _finish(recorder: Recorder, results: Any, out: Any, written: list[torch.Tensor], *, stored: bool) -> None:
    """stored: the rule has rounded what the op adds, and the rest was in memory."""
    from graphdiff.lower.aten.recorder import is_float

    results = results if isinstance(results, tuple) else (results,)
    targets = written or [t for t in tree_leaves(out) if is_float(t)]
    for t, x in zip(targets, results):
        if x is not None:
            (recorder.write if written else recorder.bind)(t, x if stored else recorder.rounded(x, t))


def _opaque(recorder: Recorder, func: Any, args: tuple, kwargs: dict, out: Any, written: list[torch.Tensor]) -> None:
    """A custom op: its inputs are read, its outputs are new leaves holding the numbers that came out."""
    from graphdiff.lower.aten.recorder import is_float

    inputs = [recorder.elements(t) for t in tree_leaves((args, kwargs)) if is_float(t) and t.numel()]
    recorder.remarks.opaque.append(str(func))
    targets = [*written, *(t for t in tree_leaves(out) if is_float(t) and not any(t is w for w in written))]
    for i, t in enumerate(targets):
        x = recorder.builder.op("opaque", *inputs, shape=tuple(t.shape), name=str(func), output=i)
        recorder.builder.leaf_bits[x.node] = t.detach().float().numpy().reshape(-1).copy()
        recorder.builder.program.data[x.node] = recorder.builder.leaf_bits[x.node]
        done: Elements = recorder.rounded(x, t)
        if any(t is w for w in written):
            recorder.write(t, done)
        else:
            recorder.bind(t, done)
