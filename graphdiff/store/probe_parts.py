"""The probe's results inside a capture: which arrays they are stored as, and what must hold for them."""

from __future__ import annotations

import msgspec
import numpy as np

from graphdiff.probe.types import ProbeData
from graphdiff.program import Node, Output
from graphdiff.program.dtypes import LOW, MODES
from graphdiff.store.container import ArrayReader, ArrayWriter, LazyDict
from graphdiff.store.validate import Invalid

State = tuple[tuple[str, ...], tuple[str, ...]]
ARRAYS = {"hashes": "uint64", "offsets": "int64", "thresholds": "uint64", "value_sketch": "int32", "value_state": "int32",
          "exact_slot": "int8", "live": "int64"}
READS = {"consumer": "int32", "slot": "int32", "sketch": "int32", "state": "int32", "count": "int64", "total": "int64",
         "static": "int8"}


class ProbeParts(msgspec.Struct):
    """ProbeData as it stands in the file: arrays by number."""

    arrays: dict[str, int]
    reads: dict[str, int]
    states: list[State]
    pins: list[tuple[int, int]]


def store_probe(probe: ProbeData, writer: ArrayWriter) -> ProbeParts:
    """Raises Invalid where a number does not fit its declared type."""
    arrays = {name: writer.add(_cast(getattr(probe, name), dtype, name)) for name, dtype in ARRAYS.items()}
    reads = {name: writer.add(_cast(a, READS[name], name) if name in READS else np.asarray(a).reshape(-1))
             for name, a in sorted(probe.reads.items())}
    pins = [(int(n), writer.add(np.asarray(probe.pins[n], np.float32).reshape(-1))) for n in sorted(probe.pins)]
    return ProbeParts(arrays, reads, [(tuple(a), tuple(b)) for a, b in probe.states], pins)


def _cast(array: np.ndarray, dtype: str, name: str) -> np.ndarray:
    given = np.asarray(array)
    out = given.astype(dtype)
    if given.dtype != out.dtype and not (given == out).all():
        raise Invalid(f"probe {name} does not fit {dtype}")
    return out.reshape(-1)


def load_probe(parts: ProbeParts, reader: ArrayReader, nodes: list[Node], outputs: list[Output]) -> ProbeData:
    """Raises Invalid (or the reader's GraphdiffError) unless every index in it points at something."""
    for names, given in ((ARRAYS, parts.arrays), (READS, parts.reads)):
        for name, dtype in names.items():
            if name not in given or reader.info(given[name]).dtype != dtype:
                raise Invalid(f"probe {name} is missing or not of type {dtype}")
    if parts.arrays.keys() - ARRAYS.keys():
        raise Invalid("the probe holds unknown arrays")
    for number in (*parts.arrays.values(), *parts.reads.values()):
        if len(reader.info(number).shape) != 1:
            raise Invalid("an array of the probe is not one-dimensional")
    arrays = {name: reader.get(number) for name, number in parts.arrays.items()}
    reads = {name: reader.get(number) for name, number in parts.reads.items()}
    _check_values(arrays, parts, nodes)
    _check_reads(reads, len(arrays["thresholds"]), len(parts.states), nodes, len(outputs))
    seen = set()
    for n, number in parts.pins:
        if not 0 <= n < len(nodes) or n in seen:
            raise Invalid(f"pinned numbers for node {n} are given twice or for no node")
        seen.add(n)
        info = reader.info(number)
        if info.dtype != "float32" or info.shape != (nodes[n].size,):
            raise Invalid(f"the pinned numbers of node {n} do not have its size")
    return ProbeData(**arrays, reads=reads, states=parts.states, pins=LazyDict(reader, dict(parts.pins), lambda a: a))


def _check_values(arrays: dict[str, np.ndarray], parts: ProbeParts, nodes: list[Node]) -> None:
    offsets, sketches = arrays["offsets"], len(arrays["thresholds"])
    if len(offsets) != sketches + 1 or offsets[0] != 0 or offsets[-1] != len(arrays["hashes"]) or (offsets[1:] < offsets[:-1]).any():
        raise Invalid("the probe's sketches do not divide its hashes")
    for name in ("value_sketch", "value_state", "exact_slot", "live"):
        if len(arrays[name]) != len(nodes):
            raise Invalid(f"probe {name} has {len(arrays[name])} entries for {len(nodes)} nodes")
    hashes, sizes = arrays["hashes"], np.diff(offsets)
    rising = hashes[1:] > hashes[:-1]
    rising[offsets[1:-1][(offsets[1:-1] > 0) & (offsets[1:-1] < len(hashes))] - 1] = True  # from one sketch to the next
    if not rising.all() or (hashes > np.repeat(arrays["thresholds"], sizes)).any():
        raise Invalid("the probe's sketches are not sorted, or go beyond their thresholds")
    for formats, events in parts.states:
        if not LOW.issuperset(formats) or any(not _is_event(e) for e in events):
            raise Invalid("the probe names a rounding there is none of")
    _within("value_sketch", arrays["value_sketch"], -1, sketches)
    _within("value_state", arrays["value_state"], -1, len(parts.states))
    _within("exact_slot", arrays["exact_slot"], -1, np.array([len(n.operands) for n in nodes], np.int64))
    _within("live", arrays["live"], 0, np.array([n.size for n in nodes], np.int64) + 1)


def _is_event(name: str) -> bool:
    dtype, _, mode = name.partition(":")
    return dtype in LOW and (mode in MODES if ":" in name else True)


def _check_reads(reads: dict[str, np.ndarray], sketches: int, states: int, nodes: list[Node], outputs: int) -> None:
    consumer = reads["consumer"]
    if any(len(a) != len(consumer) for a in reads.values()):
        raise Invalid("the probe's reads have columns of different lengths")
    _within("consumer", consumer, -outputs, len(nodes))
    slots = np.array([*(len(n.operands) for n in nodes), 1], np.int64)
    _within("slot", reads["slot"], 0, slots[np.maximum(consumer, -1)])
    _within("sketch", reads["sketch"], -1, sketches)
    _within("state", reads["state"], -1, states)
    _within("total", reads["total"], 0, 1 << 62)
    _within("count", reads["count"], 0, reads["total"] + 1)
    _within("static", reads["static"], 0, 2)


def _within(name: str, array: np.ndarray, low: int, end: int | np.ndarray) -> None:
    if ((array < low) | (array >= end)).any():
        raise Invalid(f"probe {name} is out of range")
