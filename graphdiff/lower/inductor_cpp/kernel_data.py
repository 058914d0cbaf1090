"""What a C++ kernel of Inductor's CPU backend is, as plain data: the loop bodies it was written from.

A kernel is a list of loops, run one after the other; a loop (one CppKernelProxy) runs its bodies in one loop nest, so
that they share registers. Expressions are strings of Python arithmetic over the loop's variables and symbolic sizes.
In the arguments of a node, {"n": name} is another node's result, {"f": "inf"} a float that JSON has no word for.
"""

from __future__ import annotations

from typing import Any

import msgspec


class BodyNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """One op of a loop body, its arguments as `ops.<op>` takes them (without the handler itself)."""

    name: str
    op: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


class Indirect(msgspec.Struct, frozen=True, omit_defaults=True):
    """A variable of index expressions whose number is loaded: negative numbers wrap around `size`."""

    size: str
    wrap: bool = True


class Body(msgspec.Struct, frozen=True, omit_defaults=True):
    """A loop body as the backend runs it (casts of low formats already placed, `legalize_lowp_fp_dtype`).

    blocks: "" is the body, others are what `ops.masked` runs. indirect: by the node that sets it (`set_indirect0`).
    renames: other names of a buffer that is stored to (it mutates them). suffix: runs after the loop's reduction.
    """

    name: str
    variables: list[tuple[str, str]]
    indexing: dict[str, str]
    blocks: dict[str, list[BodyNode]]
    indirect: dict[str, Indirect] = {}
    scans: dict[str, str] = {}
    renames: dict[str, list[str]] = {}
    origin: list[str] = []
    suffix: bool = False


class Loop(msgspec.Struct, frozen=True, omit_defaults=True):
    """A loop nest: sizes of its outer and of its reduced dimensions."""

    sizes: list[str]
    reduced: list[str]
    bodies: list[Body]


class CppKernel(msgspec.Struct, frozen=True, omit_defaults=True):
    """arguments: place of each buffer among the call's arguments (others are local to the kernel). sizes: of each
    symbol. dtypes: of every buffer. emulate: `emulate_precision_casts` was on."""

    name: str
    loops: list[Loop]
    arguments: dict[str, int]
    dtypes: dict[str, str]
    sizes: dict[str, int] = {}
    emulate: bool = False


class CppCode(msgspec.Struct, frozen=True, omit_defaults=True):
    """One graph: the Python wrapper's text and, in the order of its launches, the kernels."""

    text: str
    launches: list[CppKernel]
