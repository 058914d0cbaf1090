"""Records eager ATen below autograd into a program while it runs.

A tensor's provenance is that of its memory: `Storage` holds, per element, which element of which node is there, and a
view is torch's own strides over it. So view ops need no rule; ops that move data are run a second time on the element
ids instead of the numbers; ops that compute have a rule (arithmetic.py, composite.py) that says which primitives they
are, and round once at their output (eager kernels compute in float32 inside one op:
aten/src/ATen/native/cpu/*Kernel.cpp, torch 2.13, opmath types).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from graphdiff.errors import GraphdiffError
from graphdiff.lower.aten.bits import bits_written, recognise_bits
from graphdiff.lower.aten.wide import check_float64
from graphdiff.lower.aten.position import Positions
from graphdiff.lower.aten.remarks import Remarks
from graphdiff.program import Builder, Elements, Site, Storage
from graphdiff.program.builder import SHIFT
from graphdiff.program.dtypes import STORAGE

FLOATS = {torch.bfloat16: "bfloat16", torch.float16: "float16", torch.float32: "float32", torch.float64: "float64",
          torch.float8_e4m3fn: "float8_e4m3fn", torch.float8_e5m2: "float8_e5m2"}
COMPLEX = {torch.complex64: "float32", torch.complex128: "float64"}
_RAW = {1: torch.uint8, 2: torch.int16}
_SHAPE_ONLY = frozenset("unsqueeze_ squeeze_ t_ transpose_ swapaxes_ swapdims_ as_strided_ detach_ requires_grad_".split())
"""In place by their schema, but only the tensor's own strides change."""


def is_float(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and (x.dtype in FLOATS or x.dtype in COMPLEX)


def raw_bits(t: torch.Tensor) -> np.ndarray:
    """The bits of a contiguous CPU float tensor as numpy (dtypes.STORAGE), sharing memory where possible."""
    t = t.detach()
    if t.dtype in COMPLEX:
        t = torch.view_as_real(t.resolve_conj())
    name = FLOATS[t.dtype]
    if name in ("float32", "float64"):
        return t.numpy()
    return t.view(_RAW[t.element_size()]).numpy().view(STORAGE[name])


class Recorder(TorchDispatchMode):
    """Use as a context manager around the forward; then read `builder`.

    names: id of a storage -> name of the leaf it holds. Tensors never announced become constants.
    module_stack: module paths, kept by the caller's hooks; the last one owns what is recorded.
    """

    def __init__(self, builder: Builder, positions: Positions | None = None) -> None:
        super().__init__()
        self.builder, self.positions = builder, positions or Positions()
        self.module_stack: list[str] = []
        self._storages: dict[int, Storage] = {}
        self._alive: list[torch.Tensor] = []
        self._names: dict[int, tuple[str, bool, bool | None]] = {}
        self._token_ints: set[int] = set()
        self._from_floats: dict[int, Storage] = {}
        self.custom_rules: dict[str, Any] = {}
        """Rules of ops that are not ATen's, by `namespace.name`: (recorder, arguments by name, result); they write or
        bind what the op made."""
        self.remarks = Remarks()
        self.op_name = ""
        self._func: Any = None
        self._was: dict[int, torch.Tensor] = {}
        self.narrowed: dict[int, torch.dtype] = {}
        """Arguments of the op under way that it casts as it reads them, by id()."""
        self._device_scalars: set[int] = set()

    # ---- announcing
    def announce(self, t: torch.Tensor, name: str, *, dynamic: bool, keep: bool | None = None) -> None:
        """Name a leaf before it is met. Integer tensors: `dynamic` marks token-dependent ones."""
        key = _key(t)
        self._alive.append(t)
        if is_float(t):
            self._names.setdefault(key, (name, dynamic, keep))
            if not dynamic:
                self._device_scalars.add(key)
        elif dynamic:
            self._token_ints.add(key)

    def is_token_int(self, t: torch.Tensor) -> bool:
        return _key(t) in self._token_ints

    def on_device(self, t: torch.Tensor) -> bool:
        """False of a 0-dimensional tensor that was made from numbers or given as an input: it may lie on the CPU."""
        return t.dim() > 0 or _key(t) in self._device_scalars

    # ---- tensors and elements
    def elements(self, t: torch.Tensor) -> Elements:
        """Provenance of a float tensor (complex: a trailing dimension of 2)."""
        x = self._storage(t).view(*_geometry(t))
        if not x.is_affine and x.size and x.ids.min() < 0:
            raise GraphdiffError("memory is read that nothing recorded has written", where=self.where(), fix="write it with torch ops first")
        return self._lazy(t, x)

    def _lazy(self, t: torch.Tensor, x: Elements) -> Elements:
        """x seen through t's lazy conjugate and negative bits: memory holds the number before them (ATen/ConjugateFallback.cpp)."""
        if t.is_neg():
            x = self.builder.op("neg", x)
        if t.is_conj():
            minus = self.builder.op("neg", x.map(lambda ids: ids[..., 1]))
            x = Elements(x.shape, ids=np.stack([x.ids[..., 0], minus.ids], -1))
        return x

    def read(self, t: torch.Tensor) -> torch.Tensor:
        """t as the op read it (an in-place op has written over it since)."""
        return self._was.get(id(t), t).detach()

    def seen(self, x: Any) -> np.ndarray:
        """float64 numbers of an argument as the op read them."""
        return self.read(x).double().numpy() if isinstance(x, torch.Tensor) else np.asarray(x, np.float64)

    def of(self, x: Any) -> Elements | float:
        """An argument of an arithmetic op: float tensor, integer tensor (concrete numbers) or number."""
        if is_float(x):
            return self.as_type(self.elements(x), self.narrowed[id(x)]) if id(x) in self.narrowed else self.elements(x)
        if isinstance(x, torch.Tensor):
            if _key(x) in self._from_floats:
                return self._from_floats[_key(x)].view(tuple(x.shape), x.stride(), x.storage_offset())
            return self.builder.const_array(x.detach().double().numpy(), dynamic=self.is_token_int(x)).reshape(*x.shape)
        return float(x)

    def _storage(self, t: torch.Tensor) -> Storage:
        key = _key(t)
        if key not in self._storages:
            self._storages[key] = self._leaf(t, key)
            self._alive.append(t)
        storage = self._storages[key]
        name = COMPLEX.get(t.dtype) or FLOATS[t.dtype]
        if storage.dtype == name and storage.size * np.dtype(STORAGE[name]).itemsize < t.untyped_storage().nbytes():
            raise GraphdiffError("memory has grown since it was recorded", where=self.where(), fix="make a new tensor instead of resize_")
        if storage.dtype != name:
            raise GraphdiffError(f"memory of {storage.dtype} is read as {name}", where=self.where(),
                                 fix="reinterpreting floats is followed only through integer views")
        return storage

    def _leaf(self, t: torch.Tensor, key: int) -> Storage:
        dtype = COMPLEX.get(t.dtype) or FLOATS[t.dtype]
        t = t.detach().conj() if t.is_conj() else t.detach()
        t = torch._neg_view(t) if t.is_neg() else t
        count = t.untyped_storage().nbytes() // t.element_size()
        whole = t.detach() if t.is_contiguous() and t.numel() == count else t.detach().as_strided((count,), (1,), 0)
        raw = raw_bits(whole)
        if key in self._names:
            name, dynamic, keep = self._names[key]
            return Storage.of_leaf(self.builder.leaf(name, raw, dtype, dynamic=dynamic, keep=keep), dtype)
        if dtype in ("float32", "float64"):
            constant = self.builder.const_array(raw.reshape(-1).copy(), dtype)
            storage = Storage(constant.size, dtype)
            storage.ids[:] = constant.ids
            return storage
        return Storage.of_leaf(self.builder.leaf("constant", raw.copy(), dtype, dynamic=False, keep=True), dtype)

    def bind_integers(self, t: torch.Tensor, source: torch.Tensor) -> None:
        """Integer tensor t (fresh) holds source truncated: quantisation keeps its provenance.

        Numbers out of t's range wrap or saturate as the machine likes (c10/util/TypeCast.h): those stay plain numbers.
        """
        if not t.is_contiguous() or not t.numel() or not torch.equal(source.detach().double().trunc(), t.double()):
            self.remarks.integers.append(f"{self.op_name} to {str(t.dtype).removeprefix('torch.')}")
            return
        storage = Storage(t.numel(), "float32")
        storage.ids[:] = self.builder.op("trunc", self.elements(source)).ids.reshape(-1)
        self._from_floats[_key(t)] = storage
        self._alive.append(t)

    def integers(self, t: torch.Tensor) -> Elements | None:
        """Provenance of an integer tensor that was made from floats, else None."""
        storage = self._from_floats.get(_key(t))
        return None if storage is None else storage.view(tuple(t.shape), t.stride(), t.storage_offset())

    def bind(self, t: torch.Tensor, x: Elements) -> None:
        """Tensor t (freshly made by an op) holds x."""
        dtype = COMPLEX.get(t.dtype) or FLOATS[t.dtype]
        shape = (*t.shape, 2) if t.dtype in COMPLEX else tuple(t.shape)
        if x.shape != shape:
            x = x.map(lambda ids: np.broadcast_to(ids, shape)) if x.size != int(np.prod(shape)) else x.reshape(*shape)
        self._alive.append(t)
        count = t.untyped_storage().nbytes() // t.element_size() * (2 if t.dtype in COMPLEX else 1)
        node = self.builder.program.nodes[x.node] if x.node >= 0 and x.is_affine else None
        if node is not None and t.is_contiguous() and t.storage_offset() == 0 and count == node.size == x.size \
                and x.offset == 0 and self.builder.operand(x).form == "whole":
            self._storages[_key(t)] = Storage(count, dtype, node=x.node)
            return
        self._storages[_key(t)] = Storage(count, dtype)
        self.write(t, x)

    def unwritten(self, t: torch.Tensor) -> None:
        """Tensor t (freshly made) is memory that nothing has been written to."""
        if is_float(t):
            dtype = COMPLEX.get(t.dtype) or FLOATS[t.dtype]
            self._storages[_key(t)] = Storage(t.untyped_storage().nbytes() // np.dtype(STORAGE[dtype]).itemsize, dtype)
            self._alive.append(t)

    def write(self, t: torch.Tensor, x: Elements) -> None:
        """Memory of t now holds x (in-place ops)."""
        storage = self._storage(t)
        shape, strides, offset = _geometry(t)
        x = self._lazy(t, x)
        base = storage.ids[offset:]
        target = np.lib.stride_tricks.as_strided(base, shape, tuple(int(s) * 8 for s in strides))
        target[...] = np.broadcast_to(x.ids.reshape(x.shape), shape)

    def rounded(self, x: Elements, like: torch.Tensor) -> Elements:
        """The one rounding at an op's output."""
        return self.builder.round(x, FLOATS.get(like.dtype, "float32"))

    def as_type(self, x: Elements, dtype: torch.dtype) -> Elements:
        """x cast to what an op's `dtype` argument names."""
        return self.builder.round(x, FLOATS[dtype])

    def where(self) -> str:
        s = self.builder.site
        return f"{self.op_name} at {s.file}:{s.line}" if s.file else self.op_name

    def refused(self, why: str = "") -> GraphdiffError:
        """The error of an op that has no rule, or none for these arguments."""
        name = f"{self._func.namespace}.{self._func._overloadpacket.__name__}"
        return GraphdiffError(f"no lowering for {name}" + (f" ({why})" if why else ""),
                              where=self.where().removeprefix(self.op_name).strip() or self.op_name,
                              fix="rewrite the line with ops that have one, or add a rule to graphdiff/lower/aten")

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        """What fails in a rule is graphdiff's, not the recorded function's."""
        try:
            yield
        except GraphdiffError:
            raise
        except Exception as error:
            raise self.refused(f"its rule raised {type(error).__name__}: {error}") from error

    # ---- dispatch
    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        self.op_name, self._func = str(func), func
        if func._overloadpacket.__name__ in _SHAPE_ONLY:
            return func(*args, **kwargs)
        changed = _written(func, args, kwargs)
        with self._own_errors():
            self._before(func, inputs, changed)
        out = func(*args, **kwargs)
        with self._own_errors():
            self._after(func, args, kwargs, out, inputs, changed)
        return out

    def _after(self, func: Any, args: tuple, kwargs: dict, out: Any, inputs: list, changed: list) -> None:
        outputs = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        self._alive.extend(outputs)
        self._taint(inputs, [*outputs, *changed])
        if any(map(self.on_device, inputs)):
            self._device_scalars.update(_key(t) for t in outputs if not t.dim() and is_float(t))
        written = [t for t in changed if is_float(t)]
        for t in changed:
            if is_float(t):
                self._grown(t)
            else:
                self._integers_changed(t)
        if self._quantises(func, inputs, outputs):
            self.bind_integers(outputs[0], inputs[0])
        elif any(is_float(t) for t in outputs) or written:
            self._record(func, args, kwargs, out, inputs, outputs, written)
        self._was = {}

    def _grown(self, t: torch.Tensor) -> None:
        """An `out=` tensor that was empty has been given memory, all of which the op is about to write."""
        storage, nbytes = self._storages.get(_key(t)), t.untyped_storage().nbytes()
        if storage is not None and not storage.size and t.is_contiguous() and t.numel() * t.element_size() == nbytes:
            self._storages[_key(t)] = Storage(nbytes // np.dtype(STORAGE[storage.dtype]).itemsize, storage.dtype)

    def _integers_changed(self, t: torch.Tensor) -> None:
        """Integers that came from floats, or that are a float's bits, were written over."""
        if self._from_floats.pop(_key(t), None) is not None:
            self.remarks.integers.append(self.op_name)
        if _key(t) in self._storages:
            bits_written(self, t, self._storages[_key(t)].dtype)

    def _before(self, func: Any, inputs: list[torch.Tensor], changed: list[torch.Tensor]) -> None:
        from graphdiff.lower.aten.movement import moves

        file, line, column, end_line, end_column, text = self.positions.here()
        module = self.module_stack[-1] if self.module_stack else ""
        name = f"{func.namespace}.{func._overloadpacket.__name__}"
        self.builder.site = Site(kernel=name, name=str(func), module=module, file=file, line=line, column=column,
                                 end_line=end_line, end_column=end_column, text=text)
        for t in inputs:
            if is_float(t) and t.numel() and not self._is_bits(t):
                self._storage(t)
        keys = {_key(t) for t in changed}
        for key in keys:
            # A leaf's bits are shared with the tensor: keep them as they were before this op writes there.
            storage = self._storages.get(key)
            if storage is not None and storage.node >= 0 and storage.node in self.builder.leaf_bits:
                kept = self.builder.leaf_bits[storage.node].copy()
                self.builder.leaf_bits[storage.node] = kept
                if storage.node in self.builder.program.data:
                    self.builder.program.data[storage.node] = kept
        if keys and func.namespace == "aten" and not moves(func):
            self._was = {id(t): t.detach().clone() for t in inputs if is_float(t) and _key(t) in keys}

    @staticmethod
    def _quantises(func: Any, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> bool:
        return func._overloadpacket.__name__ == "_to_copy" and is_float(inputs[0]) and inputs[0].dtype in FLOATS and bool(
            inputs[0].numel()) and not is_float(outputs[0]) and outputs[0].dtype != torch.bool

    def _taint(self, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        integers = [_key(t) for t in outputs if not is_float(t)]
        if integers and any(self._is_dynamic(t) for t in inputs):
            self._token_ints.update(integers)

    def _is_dynamic(self, t: torch.Tensor) -> bool:
        if not is_float(t):
            return self.is_token_int(t)
        storage = self._storages.get(_key(t))
        if storage is None:
            return False
        owners = [storage.node] if storage.node >= 0 else np.unique(storage.ids[storage.ids >= 0] >> SHIFT).tolist()
        return any(self.builder.program.nodes[n].dynamic for n in owners)

    def holds(self, t: torch.Tensor) -> bool:
        """True if t is in float memory of its own format that is known already."""
        return _key(t) in self._storages and not self._is_bits(t)

    def _is_bits(self, t: torch.Tensor) -> bool:
        return _key(t) in self._storages and self._storages[_key(t)].dtype != (COMPLEX.get(t.dtype) or FLOATS[t.dtype])

    def _record(self, func: Any, args: tuple, kwargs: dict, out: Any, inputs: list, outputs: list, written: list) -> None:
        from graphdiff.lower.aten.rules import lower

        fresh = [t for t in outputs if is_float(t) and not any(t is w for w in written)]
        shared = {_key(t) for t in inputs if is_float(t)}
        if not written and fresh and all(_key(t) in shared for t in fresh):
            return  # views of what is known already
        if func._overloadpacket.__name__ == "view" and func._overloadname == "dtype":
            recognise_bits(self, outputs[0])
            return
        lower(self, func, args, kwargs, out, written)
        check_float64(self, func, args, kwargs, [*written, *fresh])

    def candidates(self, count: int) -> list[Elements]:
        """Recorded float values of `count` elements, latest first (see bits.py)."""
        nodes = self.builder.program.nodes
        found = [Elements.whole(i, n.shape) for i, n in enumerate(nodes) if n.size == count and n.op != "const"]
        return found[::-1][:64]


def _key(t: torch.Tensor) -> int:
    if t.layout != torch.strided:
        raise GraphdiffError(f"no lowering for {str(t.layout).removeprefix('torch.')} tensors", fix="make them dense first")
    return t.untyped_storage()._cdata


def _geometry(t: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Shape, strides and offset of t in elements of its memory; a complex number is two of them."""
    shape, strides, offset = tuple(t.shape), t.stride(), t.storage_offset()
    if t.dtype in COMPLEX:
        return (*shape, 2), (*(2 * s for s in strides), 1), 2 * offset
    return shape, strides, offset


def _written(func: Any, args: tuple, kwargs: dict) -> list[torch.Tensor]:
    """Tensors an op writes to, in schema order."""
    written = []
    for i, a in enumerate(func._schema.arguments):
        if a.alias_info is not None and a.alias_info.is_write:
            value = kwargs.get(a.name) if a.kwarg_only or i >= len(args) else args[i]
            written.extend(t for t in tree_leaves(value) if isinstance(t, torch.Tensor))
    return written
