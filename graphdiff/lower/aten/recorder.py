"""Records eager ATen below autograd into a program while it runs.

A tensor's provenance is that of its memory: `Storage` holds, per element, which element of which node is there, and a
view is torch's own strides over it. So view ops need no rule; ops that move data are run a second time on the element
ids instead of the numbers; ops that compute have a rule (arithmetic.py, composite.py) that says which primitives they
are, and round once at their output (eager kernels compute in float32 inside one op:
aten/src/ATen/native/cpu/*Kernel.cpp, torch 2.13, opmath types).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from graphdiff.errors import GraphdiffError
from graphdiff.lower.aten.bits import recognise_bits
from graphdiff.lower.aten.position import Positions
from graphdiff.program import Builder, Elements, Site, Storage
from graphdiff.program.dtypes import STORAGE

FLOATS = {torch.bfloat16: "bfloat16", torch.float16: "float16", torch.float32: "float32", torch.float64: "float64",
          torch.float8_e4m3fn: "float8_e4m3fn", torch.float8_e5m2: "float8_e5m2"}
COMPLEX = {torch.complex64: "float32", torch.complex128: "float64"}
_RAW = {1: torch.uint8, 2: torch.int16}


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
        self.random_ops: list[str] = []
        self.opaque_ops: list[str] = []
        self.op_name = ""

    # ---- announcing
    def announce(self, t: torch.Tensor, name: str, *, dynamic: bool, keep: bool | None = None) -> None:
        """Name a leaf before it is met. Integer tensors: `dynamic` marks token-dependent ones."""
        key = _key(t)
        self._alive.append(t)
        if is_float(t):
            self._names.setdefault(key, (name, dynamic, keep))
        elif dynamic:
            self._token_ints.add(key)

    def is_token_int(self, t: torch.Tensor) -> bool:
        return _key(t) in self._token_ints

    # ---- tensors and elements
    def elements(self, t: torch.Tensor) -> Elements:
        """Provenance of a float tensor (complex: a trailing dimension of 2)."""
        storage = self._storage(t)
        shape, strides, offset = tuple(t.shape), t.stride(), t.storage_offset()
        if t.dtype in COMPLEX:
            shape, strides, offset = (*shape, 2), (*(2 * s for s in strides), 1), 2 * offset
        return storage.view(shape, strides, offset)

    def of(self, x: Any) -> Elements | float:
        """An argument of an arithmetic op: float tensor, integer tensor (concrete numbers) or number."""
        if is_float(x):
            return self.elements(x)
        if isinstance(x, torch.Tensor):
            if _key(x) in self._from_floats:
                return self._from_floats[_key(x)].view(tuple(x.shape), x.stride(), x.storage_offset())
            return self.builder.const_array(x.detach().double().numpy(), dynamic=self.is_token_int(x))
        return float(x)

    def _storage(self, t: torch.Tensor) -> Storage:
        key = _key(t)
        if key not in self._storages:
            self._storages[key] = self._leaf(t, key)
            self._alive.append(t)
        storage = self._storages[key]
        name = COMPLEX.get(t.dtype) or FLOATS[t.dtype]
        if storage.dtype != name:
            raise GraphdiffError(f"memory of {storage.dtype} is read as {name}", where=self.where(),
                                 fix="reinterpreting floats is followed only through integer views")
        return storage

    def _leaf(self, t: torch.Tensor, key: int) -> Storage:
        dtype = COMPLEX.get(t.dtype) or FLOATS[t.dtype]
        count = t.untyped_storage().nbytes() // t.element_size()
        whole = t.detach() if t.is_contiguous() and t.numel() == count else t.detach().as_strided((count,), (1,), 0)
        raw = raw_bits(whole)
        if key in self._names:
            name, dynamic, keep = self._names[key]
            return Storage.of_leaf(self.builder.leaf(name, raw, dtype, dynamic=dynamic, keep=keep), dtype)
        if dtype in ("float32", "float64"):
            constant = self.builder.const_array(raw.reshape(-1), dtype)
            storage = Storage(constant.size, dtype)
            storage.ids[:] = constant.ids
            return storage
        return Storage.of_leaf(self.builder.leaf("constant", raw.copy(), dtype, dynamic=False, keep=True), dtype)

    def bind_integers(self, t: torch.Tensor, x: Elements) -> None:
        """Integer tensor t (fresh, contiguous) holds the truncated x: quantisation keeps its provenance."""
        if t.is_contiguous() and t.numel() == x.size and t.numel():
            storage = Storage(t.numel(), "float32")
            storage.ids[:] = self.builder.op("trunc", x).ids.reshape(-1)
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

    def write(self, t: torch.Tensor, x: Elements) -> None:
        """Memory of t now holds x (in-place ops)."""
        storage = self._storage(t)
        shape, strides, offset = tuple(t.shape), t.stride(), t.storage_offset()
        if t.dtype in COMPLEX:
            shape, strides, offset = (*shape, 2), (*(2 * s for s in strides), 1), 2 * offset
        base = storage.ids[offset:]
        target = np.lib.stride_tricks.as_strided(base, shape, tuple(int(s) * 8 for s in strides))
        target[...] = np.broadcast_to(x.ids.reshape(x.shape), shape)

    def rounded(self, x: Elements, like: torch.Tensor) -> Elements:
        """The one rounding at an op's output."""
        return self.builder.round(x, FLOATS.get(like.dtype, "float32"))

    def where(self) -> str:
        s = self.builder.site
        return f"{self.op_name} at {s.file}:{s.line}" if s.file else self.op_name

    # ---- dispatch
    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        self.op_name = str(func)
        self._before(func, inputs, args, kwargs)
        out = func(*args, **kwargs)
        outputs = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        self._alive.extend(outputs)
        self._taint(inputs, outputs)
        if self._quantises(func, inputs, outputs):
            self.bind_integers(outputs[0], self.elements(inputs[0]))
        elif any(is_float(t) for t in outputs) or _written(func, args, kwargs):
            self._record(func, args, kwargs, out, inputs, outputs)
        return out

    def _before(self, func: Any, inputs: list[torch.Tensor], args: tuple, kwargs: dict) -> None:
        file, line, column, end_line, end_column, text = self.positions.here()
        module = self.module_stack[-1] if self.module_stack else ""
        name = f"{func.namespace}.{func._overloadpacket.__name__}"
        self.builder.site = Site(kernel=name, name=str(func), module=module, file=file, line=line, column=column,
                                 end_line=end_line, end_column=end_column, text=text)
        for t in inputs:
            if is_float(t) and t.numel() and not self._is_bits(t):
                self._storage(t)
        for t in _written(func, args, kwargs):
            # A leaf's bits are shared with the tensor: keep them as they were before this op writes there.
            storage = self._storages.get(_key(t))
            if storage is not None and storage.node >= 0 and storage.node in self.builder.leaf_bits:
                kept = self.builder.leaf_bits[storage.node].copy()
                self.builder.leaf_bits[storage.node] = kept
                if storage.node in self.builder.program.data:
                    self.builder.program.data[storage.node] = kept

    @staticmethod
    def _quantises(func: Any, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> bool:
        return func._overloadpacket.__name__ == "_to_copy" and is_float(inputs[0]) and inputs[0].dtype in FLOATS and bool(
            inputs[0].numel()) and not is_float(outputs[0]) and outputs[0].dtype != torch.bool

    def _taint(self, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        if any(self._is_dynamic(t) for t in inputs):
            self._token_ints.update(_key(t) for t in outputs if not is_float(t))

    def _is_dynamic(self, t: torch.Tensor) -> bool:
        if not is_float(t):
            return self.is_token_int(t)
        storage = self._storages.get(_key(t))
        return storage is not None and storage.node >= 0 and self.builder.program.nodes[storage.node].dynamic

    def _is_bits(self, t: torch.Tensor) -> bool:
        return _key(t) in self._storages and self._storages[_key(t)].dtype != (COMPLEX.get(t.dtype) or FLOATS[t.dtype])

    def _record(self, func: Any, args: tuple, kwargs: dict, out: Any, inputs: list, outputs: list) -> None:
        from graphdiff.lower.aten.rules import lower

        written = _written(func, args, kwargs)
        fresh = [t for t in outputs if is_float(t) and not any(t is w for w in written)]
        shared = {_key(t) for t in inputs if is_float(t)}
        if not written and fresh and all(_key(t) in shared for t in fresh):
            return  # views of what is known already
        if func._overloadpacket.__name__ == "view" and func._overloadname == "dtype":
            recognise_bits(self, outputs[0])
            return
        lower(self, func, args, kwargs, out, written)

    def candidates(self, count: int) -> list[Elements]:
        """Recorded float values of `count` elements, latest first (see bits.py)."""
        nodes = self.builder.program.nodes
        found = [Elements.whole(i, n.shape) for i, n in enumerate(nodes) if n.size == count and n.op != "const"]
        return found[::-1][:64]


def _key(t: torch.Tensor) -> int:
    return t.untyped_storage()._cdata


def _written(func: Any, args: tuple, kwargs: dict) -> list[torch.Tensor]:
    """Float tensors an op writes to, in schema order."""
    written = []
    for i, a in enumerate(func._schema.arguments):
        if a.alias_info is not None and a.alias_info.is_write:
            value = kwargs.get(a.name) if a.kwarg_only or i >= len(args) else args[i]
            written.extend(t for t in tree_leaves(value) if is_float(t))
    return written
