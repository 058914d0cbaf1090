"""vllm 0.32: what its attention layers compute. Used by `vllm_0_32` and its parts alone."""

from typing import Any

from graphdiff.lower.inductor.engine_attention import AttentionLayer


def attention_layers(config: Any) -> dict[str, AttentionLayer]:
    """Every layer of an engine that calls attention, by the name that its op is called with."""
    return {name: _described(layer) for name, layer in config.compilation_config.static_forward_context.items()}


def _described(layer: Any) -> AttentionLayer:
    """From the backend's implementation, which is what runs (v1/attention/backends/*.py, the arguments of `__init__`)."""
    impl = getattr(layer, "impl", None)
    if impl is None or not hasattr(impl, "scale"):
        return AttentionLayer(refused=f"the attention of {type(layer).__name__}")
    kind = str(getattr(layer, "attn_type", "decoder"))
    other = getattr(impl, "kv_sharing_target_layer_name", None)
    if type(layer).__name__ != "Attention":
        refused = f"the attention of {type(layer).__name__}"
    elif kind.rsplit(".")[-1].lower() != "decoder":
        refused = f"attention of type {kind}"
    elif other:
        refused = f"attention that reads the keys of another layer ({other})"
    else:
        refused = ""
    return AttentionLayer(
        scale=float(impl.scale), window=_window(getattr(impl, "sliding_window", None)), soft_cap=float(getattr(impl, "logits_soft_cap", 0) or 0),
        slopes=_numbers(getattr(impl, "alibi_slopes", None)), sinks=_numbers(getattr(impl, "sinks", None)), refused=refused)


def _window(given: Any) -> int:
    """Backends keep the number of keys, or (that number - 1, 0) as flash attention's kernels take it; -1 is no window."""
    if isinstance(given, (tuple, list)):
        return int(given[0]) + 1 if given[0] >= 0 else 0
    return int(given) if given is not None and given > 0 else 0


def _numbers(given: Any) -> tuple[float, ...]:
    return () if given is None else tuple(float(x) for x in (given.detach().float().tolist() if hasattr(given, "detach") else given))
