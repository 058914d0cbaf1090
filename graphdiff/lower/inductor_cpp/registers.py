"""Registers of a C++ loop: what a bfloat16 or float16 variable holds, and which casts the backend does not emit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.values import Floats

LOW = frozenset({"bfloat16", "float16"})


class Narrow:
    """`to_dtype(x, bfloat16)` of a float32 register: rounded only when somebody reads it as bfloat16."""

    def __init__(self, ctx: Context, wide: Floats, dtype: str, scope: Scope | None) -> None:
        self.wide, self.dtype, self.scope = wide, dtype, scope
        self._ctx, self._site = ctx, ctx.builder.site
        self._rounded: Floats | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.wide.shape

    @property
    def rounded(self) -> Floats:
        if self._rounded is None:
            builder = self._ctx.builder
            site, builder.site = builder.site, self._site
            self._rounded = Floats(builder.round(self.wide.elements, self.dtype), self.dtype)
            builder.site = site
        return self._rounded


@dataclass(eq=False)
class Scope:
    """A stretch of code in which the backend remembers expressions (`CSE`): the loop, its suffix, a masked part.

    stores: what was stored last to each buffer, read back from the register (`store_cache`). A suffix shares the
    loop's stores but not its conversions (`CSE.clone`); a masked part sees both (`CSE.scoped_copy`).
    """

    stores: dict[str, Any] = field(default_factory=dict)
    outer: Scope | None = None

    def suffix(self) -> Scope:
        return Scope(self.stores)

    def masked(self) -> Scope:
        return Scope(dict(self.stores), self)

    def sees(self, other: Scope | None) -> bool:
        """True if a conversion remembered in `other` is found from here."""
        scope: Scope | None = self
        while scope is not None and scope is not other:
            scope = scope.outer
        return other is not None and scope is other


def plain(x: Any) -> Any:
    """What an op reads: a low register as the rounded number it is."""
    return x.rounded if isinstance(x, Narrow) else x
