"""tl.load and tl.store: reading and writing memory by concrete indices."""

from __future__ import annotations

import numpy as np

from graphdiff.lower.inductor.arithmetic import Value, float_op, is_integral, to_floats
from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.values import Floats, IntStorage, Ints, Pointer, as_ints, broadcast, is_dynamic
from graphdiff.program.builder import Elements, Storage


def load(ctx: Context, pointer: Pointer, mask: Value = None, other: Value = None) -> Value:
    """Masked-off lanes hold `other`; without it they are undefined: NaN here, so that using one shows."""
    index, live = _lanes(ctx, pointer, mask)
    try:
        if isinstance(pointer.storage, IntStorage):
            return _load_ints(pointer.storage, index, live, other)
        return Floats(_load_floats(ctx, pointer, index, live, other), pointer.dtype)
    except IndexError as error:
        raise ctx.broken(str(error)) from None


def store(ctx: Context, pointer: Pointer, value: Value, mask: Value = None) -> None:
    """The pointer's format rounds."""
    index, live = _lanes(ctx, pointer, mask, np.shape(value) if not hasattr(value, "shape") else value.shape)
    if not live.any():
        return
    if isinstance(pointer.storage, IntStorage):
        if not is_integral(value):
            raise ctx.unsupported(f"a store of floats to {pointer.storage.dtype} memory")
        ints = as_ints(value)
        pointer.storage.store(index[live], np.broadcast_to(ints.values, index.shape)[live], dynamic=ints.dynamic)
        return
    elements = broadcast(to_floats(ctx, value).elements, index.shape)
    if not live.all():
        elements, index = elements.map(lambda ids: ids[live]), index[live]
    pointer.storage.store(index, ctx.builder.round(elements, pointer.dtype))


def atomic_add(ctx: Context, pointer: Pointer, value: Value, mask: Value = None) -> None:
    """Lanes that meet at one place are added one after the other, in lane order.

    The device has no fixed order: in float32 that is as open as in any sum, in a 16-bit format every order rounds otherwise.
    """
    index, live = _lanes(ctx, pointer, mask, np.shape(value) if not hasattr(value, "shape") else value.shape)
    place = index[live]
    if isinstance(pointer.storage, IntStorage):
        raise ctx.unsupported(f"tl.atomic_add to {pointer.storage.dtype} memory")
    add_to_memory(ctx, pointer.storage, place, broadcast(to_floats(ctx, value).elements, index.shape).map(lambda ids: ids[live]), "tl.atomic_add")


def add_to_memory(ctx: Context, storage: Storage, place: np.ndarray, elements: Elements, what: str) -> None:
    """storage[place] += elements, both flat, in order of place; each addition rounds. Raises GraphdiffError for several
    to one place of a 16-bit format: every order rounds otherwise, and `what` has none."""
    turns = _turns(place)
    if turns.size and turns.max() and storage.dtype != "float32":
        raise ctx.unsupported(f"{what} of several numbers to one place of {storage.dtype} memory, whose order no code says")
    for turn in range(int(turns.max()) + 1 if turns.size else 0):
        here = turns == turn
        try:
            before = Floats(storage.load(place[here]), storage.dtype)
        except IndexError as error:
            raise ctx.broken(str(error)) from None
        total = float_op(ctx, "add", before, Floats(elements.map(lambda ids, here=here: ids[here])))
        storage.store(place[here], ctx.builder.round(to_floats(ctx, total).elements, storage.dtype))


def _turns(place: np.ndarray) -> np.ndarray:
    """For each lane how many lanes before it have its place."""
    order = np.argsort(place, kind="stable")
    ordered = place[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if place.size else np.zeros(0, int)
    turns = np.empty(place.size, int)
    turns[order] = np.arange(place.size) - np.repeat(starts, np.diff(np.r_[starts, place.size]))
    return turns


def _lanes(ctx: Context, pointer: Pointer, mask: Value, shape: tuple[int, ...] = ()) -> tuple[np.ndarray, np.ndarray]:
    """Indices and which lanes are live, broadcast; live indices are checked against the memory's size."""
    live = np.asarray(True) if mask is None else as_ints(mask).values.astype(bool)
    shape = np.broadcast_shapes(pointer.offset.shape, live.shape, shape)
    index, live = np.broadcast_to(pointer.offset.values, shape), np.broadcast_to(live, shape)
    inside = (index >= 0) & (index < pointer.storage.size)
    if not inside[live].all():
        bad = int(index[live & ~inside].flat[0])
        raise ctx.broken(f"index {bad} is outside memory of {pointer.storage.size} elements")
    return index, live


def _load_ints(storage: IntStorage, index: np.ndarray, live: np.ndarray, other: Value) -> Ints:
    if live.all():
        return storage.load(index)
    got = storage.load(index[live])
    values = np.full(index.shape, 0 if other is None else int(other), got.values.dtype)
    values[live] = got.values
    return Ints(values, got.dynamic, dtype=got.dtype)


def _load_floats(ctx: Context, pointer: Pointer, index: np.ndarray, live: np.ndarray, other: Value) -> Elements:
    if live.all():
        return _gathered(ctx, pointer, pointer.storage.load(index))
    fill = to_floats(ctx, float("nan") if other is None else other).elements
    ids = np.array(broadcast(fill, index.shape).ids)
    if live.any():
        ids[live] = _gathered(ctx, pointer, pointer.storage.load(index[live])).ids
    return Elements(ids.shape, ids=ids)


def _gathered(ctx: Context, pointer: Pointer, elements: Elements) -> Elements:
    """A gather by token from static memory is an embedding: an anchor that depends on tokens."""
    if pointer.offset.dynamic and not is_dynamic(ctx.builder, elements):
        return ctx.builder.op("embedding", elements, dynamic=True)
    return elements
