"""What native code calls beside its kernels, where it differs from CUDA's (lower/inductor/extern.py has the rest)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphdiff.lower.inductor import extern as shared
from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.values import Tensor

Handlers = dict[str, Callable[..., Any]]
IGNORED = frozenset({"torch.ops.aten._assert_async.msg", "print"})


def plain_name(name: str) -> str:
    """`torch.ops.mkldnn._linear_pointwise.default` -> `mkldnn._linear_pointwise`."""
    for prefix in ("torch.ops.", "extern_kernels."):
        name = name.removeprefix(prefix)
    return name.removesuffix(".default")


def linear_pointwise(ctx: Context, x: Tensor, weight: Tensor, bias: Tensor | None, attr: str = "none", *rest: Any,
                     **_: Any) -> Tensor:
    """mkldnn's linear, weight [out, in]; a fused activation has a schedule of its own and is not followed."""
    if attr != "none":
        raise ctx.unsupported(f"mkldnn._linear_pointwise with {attr}")
    made = ctx.builder.op("mm", x.read(), weight.read().map(lambda ids: ids.swapaxes(-1, -2)))
    if bias is not None:
        made = ctx.builder.op("add", made, bias.read())
    return shared.finish(ctx, made, shared.fresh(made.shape, x.dtype))


HANDLERS: Handlers = {"mkldnn._linear_pointwise": linear_pointwise}
