"""The schedule of each part in plain torch, as text: `plain.py` of a package. A value is rounded where its flag says."""

from __future__ import annotations

from collections.abc import Callable

Schedule = dict[str, bool]

HEAD = '''"""The engine's rounding schedule in plain torch: the CPU path, and what the kernels must equal.

Arithmetic is float32; `_rounded` is a rounding to the model's type in the middle, `.to(dtype)` the one at the end.
Gradients are autograd's: float32 inside, rounded to the model's type at the inputs. A rounding has derivative 1.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype).float()


def _normed(x: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
'''

ROTATE_HALF = '''

def _rotate_half(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)
'''

SUM = '''

def _sum(addends: tuple[Tensor, ...]) -> Tensor:
    """a + (b + c) in float32, nothing rounded: down_proj + (o_proj + residual)."""
    total = addends[-1].float()
    for addend in reversed(addends[:-1]):
        total = addend.float() + total
    return total
'''


def plain_module(ops: list[str], schedule: Schedule) -> str:
    """The text of `plain.py` for these ops."""
    text = HEAD
    if {"rope", "qk_norm_rope"} & set(ops):
        text += ROTATE_HALF
    if "input_norm" in ops:
        text += SUM
    return text + "".join("\n\n" + OPS[op](schedule).strip("\n") + "\n" for op in ops if op in OPS)


def _r(schedule: Schedule, flag: str, expression: str) -> str:
    return f"_rounded({expression}, dtype)" if schedule[flag] else expression


def _rotation(schedule: Schedule, x: str) -> str:
    first, second = _r(schedule, f"{x}_cos", "x * cos.float()"), _r(schedule, f"{x}_sin", "_rotate_half(x) * sin.float()")
    return f"    return ({first} + {second}).to(dtype)\n"


def _once(schedule: Schedule, name: str, text: Callable[[Schedule, str, str], str]) -> tuple[str, str, str]:
    """(text, function for q, function for k): one function where queries and keys are rounded alike."""
    alike = all(schedule[f] == schedule["k" + f[1:]] for f in schedule if f.startswith("q_"))
    if alike:
        return text(schedule, name, "q"), name, name
    return text(schedule, f"{name}_q", "q") + "\n" + text(schedule, f"{name}_k", "k"), f"{name}_q", f"{name}_k"


def _norm_and_rotate(schedule: Schedule, name: str, x: str) -> str:
    return f'''
def {name}(x: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, eps: float) -> Tensor:
    dtype = x.dtype
    x = {_r(schedule, f"{x}_xhat", "_normed(x.float(), eps)")}
    x = {_r(schedule, f"{x}_weighted", "weight.float() * x")}
''' + _rotation(schedule, x)


def _rotate(schedule: Schedule, name: str, x: str) -> str:
    return f'''
def {name}(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    dtype = x.dtype
    x = x.float()
''' + _rotation(schedule, x)


def _qk_norm_rope(schedule: Schedule) -> str:
    text, for_q, for_k = _once(schedule, "_norm_and_rotate", _norm_and_rotate)
    return text + f'''

def qk_norm_rope(
    q: Tensor, k: Tensor, q_weight: Tensor, k_weight: Tensor, cos: Tensor, sin: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """q, k [batch, tokens, heads, dim] -> [batch, heads, tokens, dim], normed per head and rotated."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return (
        {for_q}(q.transpose(1, 2), q_weight, cos, sin, eps),
        {for_k}(k.transpose(1, 2), k_weight, cos, sin, eps),
    )
'''


def _rope(schedule: Schedule) -> str:
    text, for_q, for_k = _once(schedule, "_rotate", _rotate)
    return text + f'''

def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """q, k [batch, tokens, heads, dim] -> [batch, heads, tokens, dim], rotated."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return {for_q}(q.transpose(1, 2), cos, sin), {for_k}(k.transpose(1, 2), cos, sin)
'''


def _swiglu(schedule: Schedule) -> str:
    return f'''
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up."""
    dtype = gate.dtype
    return ({_r(schedule, "silu", "torch.nn.functional.silu(gate.float())")} * up.float()).to(dtype)
'''


def _norm_tail(schedule: Schedule, total: str, flag: str, xhat: str) -> str:
    read = _r(schedule, flag, total)
    return _r(schedule, xhat, f"_normed({read}, eps)")


def _input_norm(schedule: Schedule) -> str:
    if schedule["stream"]:
        head, doc = "tuple[Tensor, Tensor]", "the sum, rounded; the norm of the sum). One addend, the embedding, is its own stream."
        residual = "total.to(dtype) if len(addends) > 1 else addends[0]"
    else:
        head, doc, residual = "tuple[tuple[Tensor, ...], Tensor]", "the addends themselves, never rounded; the norm of the sum).", "addends"
    return f'''
def input_norm(addends: tuple[Tensor, ...], weight: Tensor, eps: float) -> {head}:
    """(the residual stream: {doc}"""
    dtype = addends[0].dtype
    total = _sum(addends)
    residual = {residual}
    xhat = {_norm_tail(schedule, "total", "next_sum", "input_xhat")}
    return residual, (weight.float() * xhat).to(dtype)
'''


def _final_norm(schedule: Schedule) -> str:
    return f'''
def final_norm(addends: tuple[Tensor, ...], weight: Tensor, eps: float) -> Tensor:
    """The norm of the sum."""
    dtype = addends[0].dtype
    total = _sum(addends)
    xhat = {_norm_tail(schedule, "total", "next_sum", "final_xhat")}
    return (weight.float() * xhat).to(dtype)
'''


def _post_attention_norm(schedule: Schedule) -> str:
    parts = "residual" if schedule["stream"] else "*residual"
    if schedule["inner"]:
        carried, doc = "total.to(dtype),", "the rounded sum"
    else:
        carried, doc = f"o, {parts}", "its addends, for the next sum reads it unrounded"
    return f'''
def post_attention_norm(
    o: Tensor, residual: {"Tensor" if schedule["stream"] else "tuple[Tensor, ...]"}, weight: Tensor, eps: float
) -> tuple[Tensor, ...]:
    """(the norm of o + residual, what the layer carries on: {doc})."""
    dtype = o.dtype
    total = _sum((o, {parts}))
    xhat = {_norm_tail(schedule, "total", "post_sum", "post_xhat")}
    return (weight.float() * xhat).to(dtype), {carried}
'''


def _stream(schedule: Schedule) -> str:
    if schedule["inner"] or schedule["stream"]:
        rest = f"flowing[-{2 if schedule['inner'] else 3}:]"
    else:
        rest = "flowing[(len(flowing) + 1) % 2 :]  # an odd number: each layer adds two to the embedding"
    return f'''
def summands(flowing: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The addends of the residual sum, without a shown sum before them."""
    return {rest}


def shown_sum(addends: tuple[Tensor, ...]) -> Tensor:
    """The residual stream as transformers has it between layers: the sum, rounded."""
    return _sum(addends).to(addends[0].dtype)
'''


OPS: dict[str, Callable[[Schedule], str]] = {
    "qk_norm_rope": _qk_norm_rope, "rope": _rope, "swiglu": _swiglu, "input_norm": _input_norm,
    "post_attention_norm": _post_attention_norm, "final_norm": _final_norm, "stream": _stream,
}
