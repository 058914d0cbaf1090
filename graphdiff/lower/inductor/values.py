"""What names stand for while output code is evaluated: integers, floats by provenance, pointers and tensors.

Integers are concrete numbers with one mark per value, `dynamic`: computed from something that depends on tokens (input
ids), and the format that their arithmetic wraps in. Floats are Elements plus the format they have in registers, so arithmetic that really runs in bfloat16 rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphdiff.program.builder import SHIFT, Builder, Elements, Storage, contiguous
from graphdiff.program.types import Operand, affine_index

FLOATS = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2"}
"""Triton's pointer types and the formats they hold."""
INTS = {"i1": "bool", "u1": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
        "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64"}
TL_FLOATS = {"float32": "float32", "bfloat16": "bfloat16", "float16": "float16", "float8e4nv": "float8_e4m3fn",
             "float8e5": "float8_e5m2"}
TL_INTS = {"int1": "bool", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64", "uint8": "uint8",
           "uint16": "uint16", "uint32": "uint32", "uint64": "uint64"}
TORCH_INTS = frozenset({"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
TORCH_FLOATS = frozenset(FLOATS.values())


@dataclass(frozen=True)
class Ints:
    """Concrete integers or booleans (int64 or bool array of any shape).

    bits_of: the float whose bits they are made of. dtype: the format whose arithmetic wraps ("" for indices, which fit).
    """

    values: np.ndarray
    dynamic: bool = False
    bits_of: Floats | None = None
    dtype: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape


@dataclass(frozen=True)
class Floats:
    """A float value in registers: who made each element, and its format there."""

    elements: Elements
    dtype: str = "float32"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.elements.shape


class IntStorage:
    """Memory of integers, knowing what was never written and what depends on tokens."""

    def __init__(self, size: int, dtype: str) -> None:
        self.size, self.dtype = size, dtype
        self.values = np.zeros(size, np.int64)
        self.written = np.zeros(size, bool)
        self.dynamic = np.zeros(size, bool)

    @classmethod
    def of(cls, values: np.ndarray, dtype: str, *, dynamic: bool) -> IntStorage:
        made = cls(values.size, dtype)
        made.store(np.arange(values.size), values.reshape(-1), dynamic=dynamic)
        return made

    def load(self, index: np.ndarray) -> Ints:
        """Raises IndexError for what was never written."""
        if not self.written[index].all():
            raise IndexError("read of memory that was never written")
        values = self.values[index]
        return Ints(values.astype(bool) if self.dtype == "bool" else values, bool(self.dynamic[index].any()), dtype=self.dtype)

    def store(self, index: np.ndarray, values: np.ndarray, *, dynamic: bool) -> None:
        self.values[index] = wrap(values, self.dtype)
        self.written[index] = True
        self.dynamic[index] = dynamic


@dataclass(frozen=True)
class Pointer:
    """A kernel's pointer: memory, element offsets (any shape), and the format its signature gives."""

    storage: Storage | IntStorage
    offset: Ints
    dtype: str


@dataclass(frozen=True)
class Tensor:
    """A tensor of the output code: a strided view of memory."""

    storage: Storage | IntStorage
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def dtype(self) -> str:
        return self.storage.dtype

    def index(self) -> np.ndarray:
        """int64 positions in memory, of the tensor's shape."""
        return affine_index(Operand((), self.shape, "affine", self.offset, self.strides))

    def read(self) -> Elements:
        """Raises IndexError for what was never written."""
        elements = self.storage.view(self.shape, self.strides, self.offset)
        if not elements.is_affine and elements.ids.size and elements.ids.min() < 0:
            raise IndexError("read of memory that was never written")
        return elements

    def write(self, elements: Elements) -> None:
        self.storage.store(self.index(), elements)


def new_storage(size: int, dtype: str) -> Storage | IntStorage:
    """Fresh memory, all of it unwritten. Raises KeyError for a format without lowering."""
    if dtype in TORCH_INTS:
        return IntStorage(size, dtype)
    if dtype in TORCH_FLOATS:
        return Storage(size, dtype)
    raise KeyError(dtype)


def fresh(shape: Sequence[int], dtype: str) -> Tensor:
    """Unwritten memory of its own, contiguous."""
    return Tensor(new_storage(int(np.prod(shape, dtype=np.int64)), dtype), tuple(shape), contiguous(shape))


def wrap(values: np.ndarray, dtype: str) -> np.ndarray:
    """Integers as they are after a conversion to an integer format, kept in int64 (bool stays bool)."""
    if dtype == "bool":
        return np.asarray(values).astype(bool)
    return np.asarray(values).astype(dtype).astype(np.int64)


def promoted(a: Ints | int | bool, b: Ints | int | bool) -> str:
    """The format of integer arithmetic on a and b, as Triton promotes; a plain number takes the other's.

    Source: triton/language/semantic.py, integer_promote_impl (3.7.1).
    """
    formats = [x.dtype for x in (a, b) if isinstance(x, Ints)]
    if not all(formats) or not formats:
        return ""
    if len(set(formats)) == 1:
        return formats[0]
    if "bool" in formats:
        return next(f for f in formats if f != "bool")
    signed, unsigned = sorted(formats, key=lambda f: f.startswith("u"))
    if signed.startswith("u") or not unsigned.startswith("u"):
        return max(formats, key=lambda f: np.dtype(f).itemsize)
    return unsigned if np.dtype(unsigned).itemsize >= np.dtype(signed).itemsize else signed


def as_ints(x: Ints | int | bool) -> Ints:
    if isinstance(x, Ints):
        return x
    return Ints(np.asarray(x, bool if isinstance(x, (bool, np.bool_)) else np.int64))


def broadcast(elements: Elements, shape: Sequence[int]) -> Elements:
    """As numpy's broadcast_to; views of one node stay affine."""
    shape = tuple(int(n) for n in shape)
    if elements.shape == shape:
        return elements
    if elements.node < 0:
        return elements.map(lambda ids: np.broadcast_to(ids, shape))
    lead = len(shape) - len(elements.shape)
    strides = (0,) * lead + tuple(0 if n == 1 else s for n, s in zip(elements.shape, elements.strides))
    if np.broadcast_shapes(elements.shape, shape) != shape:
        raise ValueError(f"shape {elements.shape} does not broadcast to {shape}")
    return Elements(shape, node=elements.node, offset=elements.offset, strides=strides)


def constant(builder: Builder, elements: Elements) -> float | None:
    """The number, if all elements are one scalar constant."""
    if elements.node >= 0:
        node = builder.program.nodes[elements.node]
    else:
        ids = elements.ids
        if ids.size == 0 or (ids != ids.flat[0]).any():
            return None
        node = builder.program.nodes[int(ids.flat[0]) >> SHIFT]
    return node.attrs["value"] if node.op == "const" else None


def is_dynamic(builder: Builder, elements: Elements) -> bool:
    """True if any element is made by a node that depends on tokens."""
    if elements.node >= 0:
        return builder.program.nodes[elements.node].dynamic
    return any(builder.program.nodes[int(n)].dynamic for n in np.unique(elements.ids >> SHIFT))
