"""A C++ kernel evaluated abstractly: whole loops at once, one axis per loop variable.

The backend's rules (torch/_inductor/codegen/cpp.py and common.py, 2.13): a load upcasts, a store rounds to the
buffer's format; what a loop has stored it reads back from the register, unrounded (`store_cache`); a later loop of the
kernel loads the rounded buffer; float32 -> bfloat16 -> float32 inside a loop is no cast at all
(`cache_dtype_convert`) unless `use_compute_types=False` or `emulate_precision_casts`.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphdiff.lower.inductor import memory
from graphdiff.lower.inductor.arithmetic import Value, depends, float_op, is_integral, to_floats, where
from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.reductions import stable_order
from graphdiff.lower.inductor.values import (
    TORCH_FLOATS, TORCH_INTS, Floats, IntStorage, Ints, Pointer, Tensor, as_ints, broadcast, new_storage)
from graphdiff.lower.inductor_cpp import bits, ops, reduce
from graphdiff.lower.inductor_cpp import index as expressions
from graphdiff.lower.inductor_cpp.fused_attention import LogSumExp
from graphdiff.lower.inductor_cpp.kernel_data import Body, BodyNode, CppKernel, Loop
from graphdiff.lower.inductor_cpp.registers import LOW, Narrow, Scope, plain
from graphdiff.program.builder import Elements, Storage

INTEGERS = TORCH_INTS - {"bool"}
SCANS = {"add": "cumsum", "mul": "cumprod"}


def launch(ctx: Context, kernel: CppKernel, arguments: Sequence[Any]) -> None:
    """Run a kernel on tensors (memory is written) and sizes, in the order of its call."""
    Launch(ctx, kernel, arguments).run()


class Launch:
    """One call of a kernel: its memory by buffer name, its sizes by symbol."""

    def __init__(self, ctx: Context, kernel: CppKernel, arguments: Sequence[Any]) -> None:
        self.ctx, self.kernel = ctx, kernel
        self.tensors: dict[str, Tensor] = {}
        arguments = [a.tensor(ctx) if isinstance(a, LogSumExp) else a for a in arguments]
        for name, place in kernel.arguments.items():
            if place >= len(arguments) or not isinstance(arguments[place], Tensor):
                raise ctx.broken(f"argument {place} of {kernel.name} is no tensor")
            self.tensors[name] = arguments[place]
        self.sizes = {symbol: int(arguments[place]) for symbol, place in kernel.sizes.items()}
        self.loop = 0
        self.seen_as_bits: list[Floats] = []

    def run(self) -> None:
        for self.loop, loop in enumerate(self.kernel.loops):
            nest = Nest(self, loop)
            for body in loop.bodies:
                nest.run(body)

    def number(self, text: str, names: Mapping[str, Any] | None = None) -> Any:
        """An expression over the kernel's sizes (and `names`)."""
        try:
            return expressions.evaluate(text, {**self.sizes, **(names or {})})
        except expressions.NoIndex as error:
            raise self.ctx.unsupported(f"the index expression `{error}`") from None
        except KeyError as error:
            raise self.ctx.broken(f"unknown name {error} in the expression `{text}`") from None

    # ---- memory
    def tensor(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise self.ctx.broken(f"{name} is read before it is written")
        return self.tensors[name]

    def written(self, name: str, size: int) -> Tensor:
        """Memory to write to; a buffer that is no argument is local to the kernel."""
        if name in self.kernel.arguments:
            return self.tensors[name]
        old = self.tensors.get(name)
        if old is None or old.storage.size < size:
            try:
                storage = new_storage(size, self.kernel.dtypes[name])
            except KeyError:
                raise self.ctx.unsupported(f"a buffer of {self.kernel.dtypes.get(name)}") from None
            if old is not None:
                _copy(old.storage, storage)
            self.tensors[name] = Tensor(storage, (size,), (1,))
        return self.tensors[name]

    def is_read_later(self, name: str) -> bool:
        """True for an argument, and for a local buffer that a later loop loads."""
        return name in self.kernel.arguments or any(
            name in _loaded(body) for loop in self.kernel.loops[self.loop + 1:] for body in loop.bodies)


def _loaded(body: Body) -> frozenset[str]:
    return frozenset(n.args[0] for block in body.blocks.values() for n in block if n.op == "load")


def _copy(old: Storage | IntStorage, new: Storage | IntStorage) -> None:
    if isinstance(old, IntStorage):
        new.values[: old.size], new.written[: old.size] = old.values, old.written
        new.dynamic[: old.size] = old.dynamic
    else:
        new.ids[: old.size] = old.ids


class Nest:
    """One loop nest: its bodies share registers."""

    def __init__(self, run: Launch, loop: Loop) -> None:
        self.run_of, self.ctx = run, run.ctx
        self.sizes = tuple(int(run.number(s)) for s in loop.sizes)
        self.reduced = tuple(int(run.number(s)) for s in loop.reduced)
        self.scope = Scope()

    def run(self, body: Body) -> None:
        scope = self.scope.suffix() if body.suffix else self.scope
        BodyRun(self, body, scope).block("", scope, None)


class BodyRun:
    """One body: the values of its nodes and of its index variables."""

    def __init__(self, nest: Nest, body: Body, scope: Scope) -> None:
        self.nest, self.run, self.ctx, self.body = nest, nest.run_of, nest.ctx, body
        self.shape = nest.sizes if body.suffix else nest.sizes + nest.reduced
        self.origin = tuple(body.origin)
        self.names: dict[str, Any] = dict(self.run.sizes)
        self.dynamic: dict[str, bool] = {}
        self._variables()

    def _variables(self) -> None:
        """Loop variables as arrays that broadcast to the loop's shape."""
        sizes = tuple(int(self.run.number(size)) for _, size in self.body.variables)
        if sizes != self.shape:
            raise self.ctx.broken(f"{self.body.name} runs over {sizes} in a loop over {self.shape}")
        for axis, ((name, _), n) in enumerate(zip(self.body.variables, sizes)):
            self.names[name] = np.arange(n).reshape([-1 if a == axis else 1 for a in range(len(sizes))])

    def block(self, name: str, scope: Scope, mask: Value | None) -> Any:
        """Run a block; the value it returns (of `ops.masked`)."""
        env: dict[str, Any] = {}
        for node in self.body.blocks[name]:
            self.ctx.at(self.ctx.line, node.name, self.origin)
            if node.op == "output":
                return self.resolve(node.args[0], env) if node.args else None
            try:
                env[node.name] = self.node(node, env, scope, mask)
            except (ValueError, TypeError, AttributeError, KeyError, IndexError, ArithmeticError) as error:
                raise self.ctx.broken(
                    f"cannot follow {node.op} ({node.name} of {self.body.name}): {type(error).__name__}: {error}") from error
        return None

    def resolve(self, x: Any, env: Mapping[str, Any]) -> Any:
        if isinstance(x, dict):
            return env[x["n"]] if "n" in x else float(x["f"])
        if isinstance(x, (list, tuple)):
            return [self.resolve(v, env) for v in x]
        return x

    def node(self, node: BodyNode, env: dict[str, Any], scope: Scope, mask: Value | None) -> Any:
        args = [self.resolve(a, env) for a in node.args]
        kwargs = {k: self.resolve(v, env) for k, v in node.kwargs.items()}
        if node.op.startswith("masked_subblock"):
            return self.masked(node.op, args[0], args[1], scope, mask)
        if node.op in self.body.indirect:
            return self.indirect(node.op, args[0])
        if node.op in self.body.scans:
            return self.scan(self.body.scans[node.op], args[1])
        special = getattr(self, f"op_{node.op}", None)
        if special is not None:
            return special(scope, mask, *args, **kwargs)
        if node.op not in ops.TABLE:
            raise self.ctx.unsupported(f"ops.{node.op} ({node.name} of {self.body.name})")
        return ops.TABLE[node.op](self.ctx, *[plain(a) for a in args])

    # ---- indices
    def index(self, name: str) -> Ints:
        text = self.body.indexing[name]
        value = self.run.number(text, self.names)
        return Ints(np.asarray(value), any(self.dynamic.get(n, False) for n in _names(text)))

    def is_indirect(self, name: str) -> bool:
        return any(n in self.dynamic for n in _names(self.body.indexing[name]))

    def indirect(self, op: str, value: Value) -> None:
        how = self.body.indirect[op]
        ints = as_ints(plain(value))
        values = ints.values
        if how.wrap:
            size = self.run.number(how.size, self.names)
            values = np.where(values < 0, values + size, values)
        name = op.removeprefix("set_")
        self.names[name], self.dynamic[name] = values, ints.dynamic

    def op_get_index(self, scope: Scope, mask: Value | None, name: str) -> str:
        return name

    def op_getitem(self, scope: Scope, mask: Value | None, values: Any, place: int) -> Any:
        return values[place]

    def op_check_bounds(self, scope: Scope, mask: Value | None, *_: Any, **__: Any) -> None:
        """Loads check their own bounds."""

    def op_device_assert_async(self, scope: Scope, mask: Value | None, *_: Any, **__: Any) -> None:
        """A check that the recorded inputs have passed (`one_hot`): it computes nothing."""

    def op_index_expr(self, scope: Scope, mask: Value | None, index: str, dtype: str) -> Value:
        return self.convert(scope, self.index(index), dtype)

    op_value_expr = op_index_expr

    # ---- memory
    def op_load(self, scope: Scope, mask: Value | None, name: str, index: str) -> Value:
        if name in scope.stores and not self.is_indirect(index):
            return scope.stores[name]
        tensor = self.run.tensor(name)
        place = self.index(index)
        pointer = Pointer(tensor.storage, Ints(place.values + tensor.offset, place.dynamic), tensor.dtype)
        return memory.load(self.ctx, pointer, mask)

    def op_store(self, scope: Scope, mask: Value | None, name: str, index: str, value: Value, mode: str | None = None) -> None:
        if mode == "atomic_add":
            self.add(name, self.index(index), plain(value))
            return
        if mode is not None:
            raise self.ctx.unsupported(f"a store with {mode}")
        self.remember(scope, name, value)
        self.write(name, self.index(index), value)

    def op_store_reduction(self, scope: Scope, mask: Value | None, name: str, index: str, value: Value) -> None:
        self.remember(scope, name, value)
        place = self.index(index)
        first = place.values
        if self.nest.reduced and first.ndim == len(self.shape):
            first = first[(..., *[0] * len(self.nest.reduced))]
        self.write(name, Ints(first, place.dynamic), value)

    def remember(self, scope: Scope, name: str, value: Value) -> None:
        for each in (name, *self.body.renames.get(name, ())):
            scope.stores[each] = value

    def add(self, name: str, place: Ints, value: Value) -> None:
        """`atomic_add`: what falls on one element is added one by one, each sum rounded to the buffer's format."""
        tensor = self.run.tensor(name)
        if isinstance(tensor.storage, IntStorage):
            raise self.ctx.unsupported("an atomic add to integers")
        floats = to_floats(self.ctx, value)
        shape = np.broadcast_shapes(place.values.shape, floats.shape, self.shape)
        places = np.broadcast_to(place.values + tensor.offset, shape).reshape(-1)
        added = broadcast(floats.elements, shape).ids.reshape(-1)
        order = np.argsort(places, kind="stable")
        first = np.searchsorted(places[order], places[order])
        turn = np.empty(places.size, np.int64)
        turn[order] = np.arange(places.size) - first
        builder = self.ctx.builder
        for now in range(int(turn.max(initial=-1)) + 1):
            lanes = turn == now
            made = builder.op("add", tensor.storage.load(places[lanes]), Elements((int(lanes.sum()),), ids=added[lanes]))
            tensor.storage.store(places[lanes], builder.round(made, tensor.dtype))

    def write(self, name: str, place: Ints, value: Value) -> None:
        if not self.run.is_read_later(name):
            return
        shape = np.broadcast_shapes(place.values.shape, value.shape)
        places = np.broadcast_to(place.values, shape)
        tensor = self.run.written(name, int(places.max(initial=-1)) + 1)
        places = places + tensor.offset
        if places.size and not (0 <= places.min() and places.max() < tensor.storage.size):
            raise self.ctx.broken(f"a store to {name} outside its memory of {tensor.storage.size} elements")
        if isinstance(tensor.storage, IntStorage):
            ints = ops.as_integers(self.ctx, plain(value), tensor.dtype)
            tensor.storage.store(places, np.broadcast_to(ints.values, shape), dynamic=ints.dynamic)
            return
        tensor.storage.store(places, broadcast(self.stored(value, tensor.dtype).elements, shape))

    def stored(self, value: Value, dtype: str) -> Floats:
        """A value in a buffer's format."""
        if isinstance(value, Narrow) and value.dtype != dtype:
            value = value.rounded
        if isinstance(value, Narrow):
            return value.rounded
        floats = to_floats(self.ctx, value)
        return floats if floats.dtype == dtype else Floats(self.ctx.builder.round(floats.elements, dtype), dtype)

    # ---- conversions
    def op_constant(self, scope: Scope, mask: Value | None, value: Any, dtype: str) -> Value:
        return ops.constant(self.ctx, value, dtype)

    def op_to_dtype(self, scope: Scope, mask: Value | None, x: Value, dtype: str, src_dtype: str | None = None,
                    use_compute_types: bool = True) -> Value:
        if isinstance(x, Narrow) and dtype == "float32" and scope.sees(x.scope):
            return x.wide
        return self.convert(scope, plain(x), dtype, remembered=use_compute_types and not self.run.kernel.emulate)

    def convert(self, scope: Scope, x: Value, dtype: str, *, remembered: bool = True) -> Value:
        if dtype not in TORCH_FLOATS:
            return ops.as_integers(self.ctx, x, dtype)
        floats = to_floats(self.ctx, x)
        if floats.dtype == dtype:
            return floats
        if dtype == "float32":
            return Floats(floats.elements)
        if dtype in LOW and floats.dtype == "float32":
            return Narrow(self.ctx, floats, dtype, scope if remembered else None)
        return Floats(self.ctx.builder.round(floats.elements, dtype), dtype)

    def op_to_dtype_bitcast(self, scope: Scope, mask: Value | None, x: Value, dtype: str, src_dtype: str) -> Value:
        x = plain(x)
        if isinstance(x, Floats) and dtype in INTEGERS:
            self.run.seen_as_bits.append(x)
            return bits.of_floats(self.ctx, x, dtype)
        if is_integral(x) and dtype in TORCH_FLOATS:
            return bits.to_floats(self.ctx, as_ints(x), dtype, self.run.seen_as_bits)
        raise self.ctx.unsupported(f"a bitcast of {src_dtype} to {dtype}")

    # ---- parts that run on some lanes, and across lanes
    def masked(self, block: str, condition: Value, other: Any, scope: Scope, mask: Value | None) -> Value:
        chosen = ops.as_integers(self.ctx, plain(condition), "bool")
        live = chosen if mask is None else Ints(chosen.values & as_ints(mask).values, chosen.dynamic)
        made = plain(self.block(block, scope.masked(), live))
        if is_integral(made):
            filled = Ints(np.asarray(int(other)))
        else:
            filled = to_floats(self.ctx, ops.nan_if_masked(other), made.dtype)
        return where(self.ctx, chosen, made, filled)

    def op_reduction(self, scope: Scope, mask: Value | None, dtype: str, src_dtype: str, kind: str, value: Any) -> Any:
        axes = tuple(range(len(self.nest.sizes), len(self.shape)))
        given = tuple(plain(v) for v in value) if isinstance(value, list) else plain(value)
        if not axes:
            raise self.ctx.unsupported(f"the reduction {kind} over no dimension")
        return reduce.reduction(self.ctx, kind, given, self.shape, axes, dtype)

    def scan(self, kind: str, values: Any) -> Any:
        op = SCANS.get(kind)
        if op is None or len(values) != 1 or len(self.nest.reduced) != 1:
            raise self.ctx.unsupported(f"a scan by {kind or 'more than one operation'}")
        (x,) = (plain(v) for v in values)
        axis = len(self.shape) - 1
        if is_integral(x):
            ints = as_ints(x)
            return [Ints(getattr(np, op)(np.broadcast_to(ints.values, self.shape), axis=axis), ints.dynamic)]
        floats = to_floats(self.ctx, x)
        return [float_op(self.ctx, op, Floats(broadcast(floats.elements, self.shape), floats.dtype), axis=axis)]

    def op_sort(self, scope: Scope, mask: Value | None, dtypes: Any, values: Any, stable: bool, descending: bool) -> Any:
        key, *rest = (plain(v) for v in values)
        numbers = as_ints(key).values if is_integral(key) else self.ctx.builder.numbers(key.elements)
        numbers = np.broadcast_to(numbers, self.shape)
        order = stable_order(numbers, -1, descending)
        moved = []
        for v in (key, *rest):
            if is_integral(v):
                taken = np.take_along_axis(np.broadcast_to(as_ints(v).values, self.shape), order, -1)
                moved.append(Ints(taken, as_ints(v).dynamic or depends(self.ctx, key)))
            else:
                spread = broadcast(v.elements, self.shape)
                moved.append(Floats(spread.map(lambda ids: np.take_along_axis(ids, order, -1)), v.dtype))
        return moved


@functools.cache
def _names(text: str) -> frozenset[str]:
    try:
        return frozenset(n.id for n in ast.walk(expressions.parsed(text)) if isinstance(n, ast.Name))
    except expressions.NoIndex:
        return frozenset()

