"""vLLM's custom ops on CPU: matmuls whose weight a handle hides, attention, the rotary kernel.

In compiled code they act on tensors of the wrapper (`handlers`), in an eager recording on torch's (`eager_rules`).
Schedules of kernels written in C++ are read from their source, which each function cites.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphdiff.capture.vllm.raw_native import RawNative
from graphdiff.errors import GraphdiffError
from graphdiff.lower.inductor.engine_attention import AttentionLayer, attended
from graphdiff.program import Builder, Elements

ATTENTION = "vllm.unified_attention_with_output"
CACHE_UPDATE = "vllm.unified_kv_cache_update"


def matmul(builder: Builder, x: Elements, weight: Elements, bias: Elements | None) -> Elements:
    """`_C.onednn_mm`: weight [K, N]; float32 accumulation and bias, one rounding (csrc/cpu/dnnl_helper.cpp)."""
    made = builder.op("mm", x, weight)
    return made if bias is None else builder.op("add", made, bias)


def attention_layer(raw: RawNative, name: Any) -> AttentionLayer:
    """One of the engine's layers; its name may travel wrapped in an object."""
    described = raw.attention.get(str(getattr(name, "value", name)))
    if described is None:
        raise GraphdiffError(f"the engine has no attention layer {name}", where=ATTENTION, fix="run again with --debug and report it")
    return described


def rotated(builder: Builder, x: Elements, cos: Elements, sin: Elements, head: int, neox: bool) -> Elements:
    """`_C.rotary_embedding` of one of query and key [tokens, heads * head]: products and their sum in float32, one
    rounding where the result is stored over the input (csrc/cpu/pos_encoding.cpp, rotary_embedding_impl and
    rotary_embedding_gptj_impl). cos, sin: [tokens, 1, rotated / 2]."""
    tokens, half = x.shape[0], cos.shape[-1]
    heads = x.map(lambda ids: ids.reshape(tokens, -1, head))
    halves = (slice(0, half), slice(half, 2 * half)) if neox else (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
    one, two = (heads.map(lambda ids, s=s: ids[..., s]) for s in halves)
    op = builder.op
    first = op("sub", op("mul", one, cos), op("mul", two, sin))
    second = op("add", op("mul", two, cos), op("mul", one, sin))
    return _joined(heads, halves, builder.round(first, "bfloat16"), builder.round(second, "bfloat16"), x.shape)


def _joined(heads: Elements, places: tuple[slice, slice], first: Elements, second: Elements, shape: tuple[int, ...]) -> Elements:
    ids = np.array(heads.ids)
    ids[..., places[0]], ids[..., places[1]] = first.ids, second.ids
    return Elements(shape, ids=ids.reshape(shape))


# ---- compiled


def handlers(builder: Builder, raw: RawNative) -> dict[str, Callable[..., Any]]:
    """What `CppCall` calls for vLLM's ops; tensors are those of lower/inductor."""
    from graphdiff.lower.aten import raw_bits
    from graphdiff.lower.inductor.extern import engine_attention

    leaves: dict[int, Elements] = {}

    def weight(handle: Any) -> Elements:
        number = int(handle.storage.values[handle.offset])
        if number not in leaves:
            if number not in raw.weights:
                raise GraphdiffError("a matmul's weight is not known", where="_C.onednn_mm", fix="capture from the engine's start")
            tensor = raw.weights[number].t().contiguous()  # [N, K] as the checkpoint has it
            dtype = str(tensor.dtype).removeprefix("torch.")
            leaves[number] = builder.leaf(raw.weight_names[number] or f"weight {len(leaves)}", raw_bits(tensor), dtype)
        leaf = leaves[number]
        n, k = leaf.shape
        return Elements((k, n), node=leaf.node, strides=(1, k))

    def onednn_mm(ctx: Any, out: Any, x: Any, bias: Any, handle: Any) -> None:
        made = matmul(builder, x.read(), weight(handle), None if bias is None else bias.read())
        out.write(builder.round(made, out.dtype))

    def update(ctx: Any, k: Any, *_: Any, **__: Any) -> Any:
        from graphdiff.lower.inductor.extern import fresh

        return fresh((0,), k.dtype)

    return {"_C.onednn_mm": onednn_mm, ATTENTION: engine_attention, CACHE_UPDATE: update}


# ---- eager


def eager_rules(raw: RawNative, compute: bool = False) -> dict[str, Callable[..., None]]:
    """Rules of `Recorder.custom_rules`: (recorder, args by name, result). compute: attention did not run, see `_compute`."""

    def onednn_mm(recorder: Any, given: dict[str, Any], out: Any) -> None:
        values = list(given.values())
        target, x, bias, handle = values[:4]
        stored = recorder.elements(raw.weights[int(handle)])
        made = matmul(recorder.builder, recorder.elements(x), stored, None if bias is None else recorder.elements(bias))
        recorder.write(target, recorder.rounded(made, target))

    def attend(recorder: Any, given: dict[str, Any], out: Any) -> None:
        q, k, v, target, name = list(given.values())[:5]
        layer = attention_layer(raw, name)
        made = attended(recorder.builder, layer, *(recorder.elements(t) for t in (q, k, v)), ATTENTION)
        recorder.write(target, recorder.rounded(made.map(lambda ids: ids.reshape(tuple(target.shape))), target))
        if compute:
            _compute(layer, q, k, v, target)

    def update(recorder: Any, given: dict[str, Any], out: Any) -> None:
        return None

    def rotary(recorder: Any, given: dict[str, Any], out: Any) -> None:
        positions, query, key, head, table, neox = (list(given.values()) + [True])[:6]
        half = table.shape[-1] // 2
        picked = recorder.elements(table).map(lambda ids: ids[positions.flatten().numpy()])
        cos, sin = (picked.map(lambda ids, s=s: ids[:, None, s]) for s in (slice(0, half), slice(half, 2 * half)))
        for tensor in (query, key):
            if tensor is not None:
                made = rotated(recorder.builder, recorder.elements(tensor), cos, sin, int(head), bool(neox))
                recorder.write(tensor, made)

    return {"_C.onednn_mm": onednn_mm, ATTENTION: attend, CACHE_UPDATE: update, "_C.rotary_embedding": rotary}


def _compute(layer: AttentionLayer, q: Any, k: Any, v: Any, target: Any) -> None:
    """Outside a batch the engine's attention returns without having computed: give its result the numbers that what
    follows (a router's choice, an opaque op) is recorded with."""
    import torch

    from graphdiff.program import Evaluation

    builder = Builder()
    given = [builder.leaf(name, t.detach().float().numpy(), "float32", dynamic=True) for name, t in zip("qkv", (q, k, v))]
    builder.output("attention", attended(builder, layer, *given, ATTENTION))
    made = Evaluation(builder.program, builder.leaf_bits).output(0)
    target.copy_(torch.from_numpy(made.copy()).reshape(target.shape))
