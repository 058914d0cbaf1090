from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdiff.errors import GraphdiffError
from graphdiff.program import Builder, Evaluation, Program
from graphdiff.store import Capture, CaptureInfo, decode_capture, encode_capture, read_capture, write_capture
from store_programs import random_capture


def assert_same(a: Capture, b: Capture) -> None:
    assert a.header == b.header
    assert a.program.sites == b.program.sites
    assert len(a.program.nodes) == len(b.program.nodes)
    for x, y in zip(a.program.nodes, b.program.nodes):
        assert (x.op, x.shape, x.operands, x.dtype, x.dynamic, x.site) == (y.op, y.shape, y.operands, y.dtype, y.dynamic, y.site)
        assert as_tuples(x.attrs) == as_tuples(y.attrs)
    assert a.program.outputs == b.program.outputs
    assert dict(a.sources) == dict(b.sources)
    for x, y in zip(a.program.blobs, b.program.blobs, strict=True):
        assert x.dtype == y.dtype and np.array_equal(x, y)
    same_arrays(a.program.data, b.program.data)
    assert (a.probe is None) == (b.probe is None)
    if a.probe and b.probe:
        assert a.probe.states == b.probe.states
        same_arrays(a.probe.pins, b.probe.pins)
        same_arrays(a.probe.reads, b.probe.reads)
        for name in ("hashes", "offsets", "thresholds", "value_sketch", "value_state", "exact_slot", "live"):
            assert np.array_equal(getattr(a.probe, name), getattr(b.probe, name)), name


def same_arrays(a, b):
    assert sorted(a) == sorted(b)
    for key in a:
        assert a[key].dtype == b[key].dtype and np.array_equal(a[key], b[key]), key


def as_tuples(x):
    if isinstance(x, (list, tuple)):
        return tuple(as_tuples(y) for y in x)
    return {k: as_tuples(v) for k, v in x.items()} if isinstance(x, dict) else x


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 25))
def test_what_is_read_is_what_was_written(seed, steps):
    capture = random_capture(seed, steps)
    data = encode_capture(capture)
    back = decode_capture(data, "x")
    assert_same(capture, back)
    assert encode_capture(back) == data


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_equal_input_gives_equal_bytes(seed):
    assert encode_capture(random_capture(seed)) == encode_capture(random_capture(seed))


def test_order_of_mappings_does_not_matter():
    a, b = random_capture(1), random_capture(1)
    b.sources = dict(reversed(a.sources.items()))
    b.program.data = dict(reversed(a.program.data.items()))
    b.header.versions = dict(reversed(a.header.versions.items()))
    b.probe.pins = dict(reversed(a.probe.pins.items()))
    assert encode_capture(a) == encode_capture(b)


@pytest.mark.parametrize("array", [
    np.array([], np.int64), np.array([-(2**63), 2**63 - 1, 0, -1]), np.array([0, 2**64 - 1, 5], np.uint64),
    np.array([3, -7, 2**31 - 1, -(2**31)], np.int32), np.array([1.5, np.nan, -0.0, np.inf], np.float32),
    np.array([True, False]), np.arange(12, dtype=np.float64).reshape(3, 4), np.array(5, np.int32), np.array([255, 0], np.uint8),
    np.array([65535, 1], np.uint16), np.array([-128, 127], np.int8), np.arange(10, dtype=np.int32)[::-2]])
def test_arrays_come_back_bit_for_bit(array):
    from graphdiff.store.container import ArrayWriter, unpack

    writer = ArrayWriter()
    number = writer.add(array)
    _, reader = unpack(writer.file(None), "x")
    back = reader.get(number)
    assert back.shape == array.shape and back.dtype == array.dtype and back.tobytes() == array.tobytes()


def test_a_loaded_program_evaluates_to_the_same_bits(tmp_path):
    b = Builder()
    x = b.leaf("x", np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32), "float32", dynamic=True)
    y = b.round(b.op("mul", x, b.op("sum", x, axes=(0,))), "bfloat16").map(lambda ids: ids[:, ::-1])
    b.output("y", y)
    write_capture(tmp_path / "c", Capture(CaptureInfo(kind="function"), b.program))
    back = read_capture(tmp_path / "c").program
    assert Evaluation(back, back.data).output(0).tobytes() == Evaluation(b.program, b.program.data).output(0).tobytes()


def test_equal_arrays_are_stored_once_and_runs_shrink():
    program = Program()
    program.blobs = [np.arange(100_000, dtype=np.int32) + 0 * i for i in range(20)]
    assert len(encode_capture(Capture(CaptureInfo(kind="function"), program))) < 2000


def test_comparing_touches_only_what_it_asks_for(tmp_path):
    capture = random_capture(2, 20)
    write_capture(tmp_path / "c", capture)
    back = read_capture(tmp_path / "c")
    kept = back.program.blobs._reader._kept
    before = len(kept)
    assert len(back.program.blobs) == len(capture.program.blobs)
    assert len(kept) == before
    assert back.program.blobs[-1] is back.program.blobs[len(back.program.blobs) - 1]
    with pytest.raises(IndexError):
        back.program.blobs[len(back.program.blobs)]
    assert len(back.program.blobs[:2]) == 2
    assert -1 not in back.program.data


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    write_capture(tmp_path / "c", random_capture(1))
    before = (tmp_path / "c").read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(GraphdiffError, match="No space left.*free space"):
        write_capture(tmp_path / "c", random_capture(2))
    assert (tmp_path / "c").read_bytes() == before
    assert os.listdir(tmp_path) == ["c"]


@pytest.mark.parametrize("spoil", [
    lambda c: c.program.nodes[0].attrs.update(x=object()),
    lambda c: c.header.model.config.update(x=b"bytes"),
    lambda c: c.program.blobs.append(np.zeros(1, np.complex64)),
    lambda c: c.program.outputs.append(c.program.outputs[0]),
    lambda c: setattr(c, "sources", {"a": "\ud800"}),
    lambda c: c.probe.reads.pop("slot"),
])
def test_what_could_not_be_read_again_is_not_written(tmp_path, spoil):
    capture = random_capture(1)
    spoil(capture)
    with pytest.raises(GraphdiffError, match="cannot be stored"):
        write_capture(tmp_path / "c", capture)
    assert os.listdir(tmp_path) == []


def test_numbers_of_an_opaque_op_are_kept_and_those_of_a_computed_one_refused():
    builder = Builder()
    leaf = builder.leaf("x", np.arange(6, dtype=np.float32), "float32", keep=True)
    told = builder.op("opaque", leaf, shape=(6,), name="mine.twice", output=0)
    builder.output("y", builder.op("add", told, told))
    builder.program.data[told.node] = np.full(6, 0.5, np.float32)
    capture = Capture(CaptureInfo(kind="function"), builder.program)
    again = decode_capture(encode_capture(capture), "here")
    assert_same(capture, again)
    assert Evaluation(again.program, again.program.data).output(0).tolist() == [1.0] * 6
    builder.program.data[told.node] = np.full(6, 0.5, np.float64)
    with pytest.raises(GraphdiffError, match="type and size"):
        encode_capture(capture)
    builder.program.data[told.node] = np.full(6, 0.5, np.float32)
    builder.program.data[builder.program.outputs[0].operand.nodes[0]] = np.zeros(6, np.float32)
    with pytest.raises(GraphdiffError, match="which is no leaf"):
        encode_capture(capture)
