"""Every kind of damage is one line that says what, where (the file) and what to do."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zipfile
import zlib

import msgspec
import numpy as np
import pytest
from store_programs import put_together, random_capture, take_apart, with_header

from graphdiff.errors import GraphdiffError
from graphdiff.program import Builder
from graphdiff.store import Capture, CaptureInfo, decode_capture, encode_capture, read_capture
from graphdiff.store.container import MAGIC, PREFIX


@pytest.fixture(scope="module")
def good() -> bytes:
    return encode_capture(simple())


def simple() -> Capture:
    """x [4, 6] -> mul -> sum -> round, plus an affine, a gather and a mm. Node numbers: see NODES."""
    b = Builder()
    x = b.leaf("x", np.arange(24, dtype=np.float32).reshape(4, 6), "float32", dynamic=True)
    squared = b.op("mul", x, x)
    total = b.op("sum", squared, axes=(-1,))
    rounded = b.round(total, "bfloat16")
    table = b.leaf("table", np.arange(12, dtype=np.uint16), "bfloat16")
    row = b.op("neg", type(table)((3,), node=table.node, offset=2, strides=(3,)))
    swapped = b.op("add", x.map(lambda ids: ids[:, ::-1]), 1.0)
    w = b.leaf("w", np.zeros((6, 2), np.uint16), "bfloat16")
    product = b.op("mm", swapped, w)
    heads = b.op("exp", b.leaf("h", np.zeros((2, 4, 3), np.float32), "float32"))
    attended = b.op("attention", heads, heads, heads, scale=0.5)
    for name, value in {"rounded": rounded, "row": row, "product": product, "attended": attended}.items():
        b.output(name, value)
    probe = random_capture(1).probe
    n, outputs = len(b.program.nodes), len(b.program.outputs)
    probe.value_sketch, probe.value_state, probe.exact_slot = np.zeros(n, np.int32), np.zeros(n, np.int32), np.full(n, -1, np.int8)
    probe.live = np.zeros(n, np.int64)
    reads = {"consumer": [-outputs, 1, 1], "slot": [0, 0, 1], "sketch": [-1, 0, 4], "state": [-1, 0, 1], "count": [1, 2, 3],
             "total": [1, 2, 3], "static": [0, 1, 0]}
    probe.reads = {k: np.array(v, np.int8 if k == "static" else np.int64 if k in ("count", "total") else np.int32) for k, v in reads.items()}
    probe.pins = {b.program.outputs[2].operand.nodes[0]: np.zeros(8, np.float32)}
    return Capture(CaptureInfo(kind="function"), b.program, probe, {"a.py": "x = 1"})


def refused(path, match: str, fix: str = "") -> None:
    with pytest.raises(GraphdiffError) as e:
        touch(read_capture(path))
    text = str(e.value)
    assert text.isprintable() and len(text) < 600 + len(os.fspath(path))
    assert os.fspath(path) in text and e.value.fix
    assert match in e.value.what, text
    assert fix in e.value.fix, text


def touch(capture: Capture) -> None:
    for x in capture.program.blobs, capture.program.data.values(), capture.sources.values(), capture.probe.pins.values() if capture.probe else ():
        list(x)


# ---- files that are no capture
FOREIGN = {
    "empty": (b"", "an empty file"),
    "text": (b"hello, this is some text\n" * 3, "a text file"),
    "json": (json.dumps({"schema": 1}).encode(), "a text file"),
    "safetensors": (struct.pack("<Q", 60) + b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}      ' + bytes(4), "a safetensors file"),
    "pickle": (pickle.dumps({"a": 1}), "a pickle"),
    "gzip": (b"\x1f\x8b\x08" + bytes(40), "a gzip file"),
    "elf": (b"\x7fELF" + bytes(60), "a program"),
    "zeros": (bytes(100), "this file is not a capture"),
    "utf-16": ("capture".encode("utf-16"), "this file is not a capture"),
    "one byte": (MAGIC[:1], "ends within its first bytes"),
    "magic only": (MAGIC, "ends within its first bytes"),
    "prefix only": (MAGIC + b"\x01\x00" + bytes(5), "ends within its first bytes"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files(tmp_path, name):
    data, match = FOREIGN[name]
    (tmp_path / "c").write_bytes(data)
    refused(tmp_path / "c", match)


def test_zip(tmp_path):
    with zipfile.ZipFile(tmp_path / "c", "w") as z:
        z.writestr("data.pkl", "x")
    refused(tmp_path / "c", "a zip archive")


def test_paths(tmp_path):
    refused(tmp_path, "a folder is not a capture")
    refused(tmp_path / "missing", "no such capture file", "graphdiff capture")
    refused(tmp_path / ("x" * 300), "cannot be read")
    (tmp_path / "file").write_bytes(b"x")
    refused(tmp_path / "file" / "c", "cannot be read")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "not a regular file")
    with pytest.raises(GraphdiffError):
        read_capture("a\0b")


def test_a_huge_file_is_not_read(tmp_path):
    with open(tmp_path / "c", "wb") as f:
        f.truncate(3 << 30)
    refused(tmp_path / "c", "more than a capture may have")


def test_versions(tmp_path, good):
    for version in (0, 2, 999):
        (tmp_path / "c").write_bytes(MAGIC + struct.pack("<H", version) + good[8:])
        refused(tmp_path / "c", f"in format {version}, this graphdiff reads format 1", "install the graphdiff that wrote it")


def test_every_truncation(tmp_path, good):
    for end in [*range(PREFIX.size + 5), *range(PREFIX.size, len(good), 7), len(good) - 1]:
        with pytest.raises(GraphdiffError):
            decode_capture(good[:end], "c")
    (tmp_path / "c").write_bytes(good[:-1])
    refused(tmp_path / "c", "cut short", "capture again")
    (tmp_path / "c").write_bytes(good + b"x")
    refused(tmp_path / "c", "1 bytes too many")


def test_every_flipped_byte_is_noticed(good):
    for i in range(len(good)):
        bad = good[:i] + bytes([good[i] ^ 0x41]) + good[i + 1:]
        with pytest.raises(GraphdiffError):
            touch(decode_capture(bad, "c"))


# ---- hostile headers, with right checksums
def test_declared_lengths(tmp_path, good):
    path = tmp_path / "c"
    header = zlib.compress(b"x")
    for packed, size, match in ((2**64 - 1, 1, "cut short"), (len(header), 2**64 - 1, "declared as"), (len(header), 1 << 26, "declared as"), (len(header), 1 << 20, "as large as declared"),
                                (len(header), 0, "declared size"), (len(header), 2, "declared size"), (0, 0, "decompressed")):
        path.write_bytes(PREFIX.pack(MAGIC, 1, packed, size, zlib.crc32(header[:packed])) + header)
        with pytest.raises(GraphdiffError) as e:
            read_capture(path)
        assert match in str(e.value) or "declared size" in str(e.value)


@pytest.mark.parametrize(("header", "match"), {
    "array of 4e9": (b"\xdd\xff\xff\xff\xff\x01", "malformed"),
    "text of 4 GB": (b"\x92\x90\xdb\xff\xff\xff\xff\x01", "malformed"),
    "deep": (b"\x91" * 200_000, "malformed"),
    "deep content": (b"\x92\x90" + b"\x91" * 200_000 + b"\x90", "nested"),
    "text that is no UTF-8": (b"\x92\x90\x81\xa2\xff\xfe\x01", "malformed"),
    "a million lists": (b"\xdd" + struct.pack(">I", 3 << 20) + b"\x90" * (3 << 20), "too many parts"),
    "nothing": (b"", "malformed"),
    "an ext type": (b"\x92\x90\xd4\x01\x00", "malformed"),
    "a map": (b"\x80", "malformed"),
}.values())
def test_malformed_headers(tmp_path, header, match):
    (tmp_path / "c").write_bytes(with_header(header))
    refused(tmp_path / "c", match)


def set_in(*path_and_value):
    *path, key, value = path_and_value

    def change(arrays, content):
        target = {"arrays": arrays, **content}
        holder = content
        if path[0] == "arrays":
            holder = target
        for part in path:
            holder = holder[part]
        holder[key] = value
    return change


LEAF, MUL, SUM, ROUND, TABLE, NEG, CONST, ADD, W, MM, H, EXP, ATTENTION = range(13)
HUGE = 2**62
HOSTILE = {
    "10^9 elements in an array": (set_in("arrays", 0, 1, [10**9]), "as large as declared"),
    "negative shape": (set_in("arrays", 0, 1, [-4]), "shape"),
    "shape overflow": (set_in("arrays", 0, 1, [2**33, 2**33, 2**33]), "declared to take"),
    "shape of 2^64": (set_in("arrays", 0, 1, [2**64 - 1]), "shape"),
    "100 dimensions": (set_in("arrays", 0, 1, [1] * 100), "shape"),
    "unknown dtype": (set_in("arrays", 0, 0, "object"), "Invalid enum value 'object'"),
    "negative stored size": (set_in("arrays", 0, 2, -1), "as large as declared"),
    "stored size past the end": (set_in("arrays", 0, 2, 2**40), "cut short"),
    "stored size shifts the others": (set_in("arrays", 0, 2, 30), ""),
    "wrong crc": (set_in("arrays", 0, 3, 1), "checksum"),
    "missing nodes": (lambda a, c: c.pop("nodes"), "missing required field `nodes`"),
    "nodes of another type": (set_in("nodes", 0, 7), "Expected `object`, got `int`"),
    "float for a node number": (set_in("nodes", MUL, "operands", 0, "nodes", [0.0]), "Expected `int`"),
    "NaN for a dimension": (set_in("nodes", MUL, "shape", [float("nan"), 6]), "Expected `int`"),
    "unknown op": (set_in("nodes", MUL, "op", "__import__('os')"), "no such op"),
    "unknown format": (set_in("nodes", ROUND, "dtype", "int3"), "no such format"),
    "site out of range": (set_in("nodes", MUL, "site", 10**6), "site"),
    "site -2": (set_in("nodes", MUL, "site", -2), "site"),
    "later node": (set_in("nodes", MUL, "operands", 0, "nodes", [ADD]), "not an earlier one"),
    "itself": (set_in("nodes", MUL, "operands", 0, "nodes", [MUL]), "not an earlier one"),
    "node -1": (set_in("nodes", MUL, "operands", 0, "nodes", [-1]), "not an earlier one"),
    "node 2^62": (set_in("nodes", MUL, "operands", 0, "nodes", [HUGE]), "not an earlier one"),
    "node 2^70": (lambda a, c: c["nodes"][MUL].update(site=2**64 - 1), "site"),
    "no node": (set_in("nodes", MUL, "operands", 0, "nodes", []), "not one"),
    "two nodes as one": (set_in("nodes", MUL, "operands", 0, "nodes", [0, 0]), "not one"),
    "whole of another size": (set_in("nodes", MUL, "operands", 0, "shape", [4, 7]), "it reads 28 elements"),
    "negative dimension": (set_in("nodes", MUL, "shape", [-4, -6]), "out of range"),
    "overflowing shape": (set_in("nodes", LEAF, "shape", [2**32, 2**32, 2**32]), "out of range"),
    "zero times huge": (set_in("nodes", LEAF, "shape", [0, 2**63]), "out of range"),
    "node of 64 dimensions": (set_in("nodes", LEAF, "shape", [1] * 64), "dimensions"),
    "affine past the end": (set_in("nodes", NEG, "operands", 0, "offset", 6), "reads elements 6 to 12 of node 4, which has 12"),
    "affine before the start": (set_in("nodes", NEG, "operands", 0, "strides", [-2]), "reads elements -2 to 2"),
    "affine offset -1": (set_in("nodes", NEG, "operands", 0, "offset", -1), "reads elements"),
    "affine stride 2^62": (set_in("nodes", NEG, "operands", 0, "strides", [HUGE]), "stride"),
    "affine strides missing": (set_in("nodes", NEG, "operands", 0, "strides", []), "strides for"),
    "unknown form": (set_in("nodes", NEG, "operands", 0, "form", "eval"), "Invalid enum value 'eval'"),
    "blob out of range": (set_in("nodes", ADD, "operands", 0, "index", 9), "index array 9"),
    "blob -1": (set_in("nodes", ADD, "operands", 0, "index", -1), "index array -1"),
    "blob of another size": (set_in("nodes", ADD, "operands", 0, "shape", [4, 5]), "elements for 20"),
    "gather from a small node": (set_in("nodes", ADD, "operands", 0, "nodes", [TABLE]), "points outside the 12 elements"),
    "gather from nothing": (set_in("nodes", ADD, "operands", 0, "nodes", []), "selects elements from nothing"),
    "blob that is no array": (set_in("blobs", 0, 99), "refers to array 99"),
    "blob of floats": (lambda a, c: c["blobs"].__setitem__(0, c["data"][0][1]), "holds float32"),
    "too many operands": (lambda a, c: c["nodes"][MUL]["operands"].append(c["nodes"][MUL]["operands"][0]), "3 operands"),
    "no operands": (set_in("nodes", SUM, "operands", []), "0 operands"),
    "shapes that do not go together": (set_in("nodes", MUL, "operands", 0, "shape", [6, 4]), "do not go together"),
    "another result shape": (set_in("nodes", MUL, "shape", [4, 5]), "do not go together"),
    "smaller result shape": (set_in("nodes", ADD, "shape", [1, 6]), "computes the shape"),
    "axis out of range": (set_in("nodes", SUM, "attrs", {"axes": [2]}), "axis 2 of 2"),
    "axis 2^63": (set_in("nodes", SUM, "attrs", {"axes": [2**63]}), "axis"),
    "axis as text": (set_in("nodes", SUM, "attrs", {"axes": ["0"]}), "axis 0"),
    "axis as bool": (set_in("nodes", SUM, "attrs", {"axes": [True]}), "axis True"),
    "axis twice": (set_in("nodes", SUM, "attrs", {"axes": [1, -1]}), "twice"),
    "no axes": (set_in("nodes", SUM, "attrs", {}), "axes"),
    "axes as number": (set_in("nodes", SUM, "attrs", {"axes": 1}), "axes"),
    "attribute with bytes": (set_in("nodes", MUL, "attrs", {"x": b"\x80\x04"}), "attribute holds a bytes"),
    "attribute nested": (set_in("nodes", MUL, "attrs", {"x": [[[[[[1]]]]]]}), "nested too deeply"),
    "attribute with a time": (set_in("nodes", MUL, "attrs", {"x": msgspec.msgpack.Ext(-1, bytes(4))}), "holds a datetime"),
    "attribute with an extension": (set_in("nodes", MUL, "attrs", {"x": msgspec.msgpack.Ext(5, b"x")}), "holds a Ext"),
    "constant as text": (set_in("nodes", CONST, "attrs", {"value": "1"}), "not a number"),
    "constant with a shape": (set_in("nodes", CONST, "shape", [1]), "single number"),
    "rounding mode": (set_in("nodes", ROUND, "attrs", {"mode": "sideways"}), "rounding mode"),
    "rounding mode as list": (set_in("nodes", ROUND, "attrs", {"mode": ["rne"]}), "rounding mode"),
    "rounding another shape": (set_in("nodes", ROUND, "shape", [2, 4]), "rounds the shape"),
    "leaf name": (set_in("nodes", LEAF, "attrs", {"name": 3}), "not a text"),
    "product": (set_in("nodes", MM, "operands", 1, "shape", [2, 6]), "product of shapes"),
    "scale": (set_in("nodes", ATTENTION, "attrs", {"scale": "1"}), "scale"),
    "no scale": (set_in("nodes", ATTENTION, "attrs", {}), "scale"),
    "causal": (set_in("nodes", ATTENTION, "attrs", {"scale": 1.0, "causal": 3}), "causal"),
    "heads": (set_in("nodes", ATTENTION, "operands", 1, "shape", [4, 2, 3]), "attention over"),
    "data for no leaf": (set_in("data", 0, 0, MUL), "no leaf"),
    "data for node 10^9": (set_in("data", 0, 0, 10**9), "no leaf"),
    "data twice": (lambda a, c: c["data"].append(c["data"][0]), "given twice"),
    "data of another leaf": (lambda a, c: c["data"][0].__setitem__(1, c["data"][1][1]), "type and size"),
    "two outputs of one name": (set_in("outputs", 0, "name", "row"), "two outputs"),
    "output of a later node": (set_in("outputs", 0, "operand", "nodes", [13]), "not an earlier one"),
    "negative line": (set_in("sites", 0, "line", -5), "no place"),
    "unknown kind": (set_in("info", "kind", "pickle"), "Invalid enum value"),
    "another format inside": (set_in("info", "format", 3), "format 3"),
    "version that is no text": (set_in("info", "versions", {"torch": 2}), "Expected `str`"),
    "config with bytes": (set_in("info", "model", {"config": {"a": b"x"}}), "holds a bytes"),
    "source that is no text": (lambda a, c: c["sources"].update({"b": c["blobs"][0]}), "not a text"),
    "source that is not there": (lambda a, c: c["sources"].update({"b": 10**6}), "refers to array"),
    "probe array missing": (lambda a, c: c["probe"]["arrays"].pop("live"), "live is missing"),
    "probe array of another type": (lambda a, c: c["probe"]["arrays"].update(live=c["probe"]["arrays"]["hashes"]), "live is missing or not of type"),
    "probe array of another length": (lambda a, c: c["probe"]["arrays"].update(live=c["probe"]["arrays"]["offsets"]), "entries for"),
    "unknown probe array": (lambda a, c: c["probe"]["arrays"].update(more=0), "unknown arrays"),
    "reads of unequal length": (lambda a, c: c["probe"]["reads"].update(total=c["probe"]["arrays"]["live"]), "different lengths"),
    "reads swapped": (lambda a, c: c["probe"]["reads"].update(slot=c["probe"]["reads"]["sketch"]), "slot is out of range"),
    "states missing": (lambda a, c: c["probe"]["states"].clear(), "state is out of range"),
    "pins twice": (lambda a, c: c["probe"]["pins"].append(c["probe"]["pins"][0]), "given twice"),
    "pins of another size": (set_in("probe", "pins", 0, 0, LEAF), "its size"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_content(tmp_path, good, name):
    change, match = HOSTILE[name]
    arrays, content, stored = take_apart(good)
    change(arrays, content)
    (tmp_path / "c").write_bytes(put_together(arrays, content, stored))
    refused(tmp_path / "c", match)


def replace_array(data: bytes, number: int, stored: bytes, **changes) -> bytes:
    arrays, content, chunks = take_apart(data)
    start = sum(a[2] for a in arrays[:number])
    old = arrays[number]
    arrays[number] = [changes.get("dtype", old[0]), changes.get("shape", old[1]), len(stored), zlib.crc32(stored)]
    return put_together(arrays, content, chunks[:start] + stored + chunks[start + old[2]:])


def test_arrays_that_are_not_what_they_say(tmp_path, good):
    path = tmp_path / "c"
    number = take_apart(good)[1]["blobs"][0]
    for stored, match in ((zlib.compress(bytes(1 << 26)), "declared size"), (b"no zlib data at all", "cannot be decompressed"),
                          (zlib.compress(bytes(95)), "declared size"), (zlib.compress(bytes(96))[:-3], "declared size"),
                          (zlib.compress(bytes(96)) + b"x", "declared size")):
        path.write_bytes(replace_array(good, number, stored))
        refused(path, match)
    path.write_bytes(replace_array(good, number, zlib.compress(b"\xff" * 96)))
    refused(path, "points outside the 24 elements")


def test_a_zlib_bomb_takes_no_memory(good):
    import tracemalloc

    number = take_apart(good)[1]["blobs"][0]
    bad = replace_array(good, number, zlib.compress(bytes(1 << 28)))
    tracemalloc.start()
    with pytest.raises(GraphdiffError, match="declared size"):
        touch(decode_capture(bad, "c"))
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_a_source_that_is_no_utf8(tmp_path, good):
    number = take_apart(good)[1]["sources"]["a.py"]
    (tmp_path / "c").write_bytes(replace_array(good, number, zlib.compress(b"\xff\xfe"), shape=[2]))
    refused(tmp_path / "c", "not UTF-8")


def test_offsets_of_sketches(tmp_path, good):
    number = take_apart(good)[1]["probe"]["arrays"]["offsets"]
    for values in ([0, 5, 3, 4, 5, 10**6], [1, 1, 1, 1, 1, 1], [-1, 0, 0, 0, 0, 0]):
        delta = np.diff(np.array(values), prepend=0).astype("<i8")
        planes = delta.view(np.uint8).reshape(-1, 8).T.tobytes()
        (tmp_path / "c").write_bytes(replace_array(good, number, zlib.compress(planes), shape=[6]))
        refused(tmp_path / "c", "do not divide")


def test_the_simple_capture_is_what_these_tests_think(good):
    touch(capture := decode_capture(good, "c"))
    assert [n.op for n in capture.program.nodes] == ["leaf", "mul", "sum", "round", "leaf", "neg", "const", "add", "leaf", "mm", "leaf", "exp", "attention"]
    assert capture.program.nodes[NEG].operands[0].form == "affine" and capture.program.nodes[ADD].operands[0].form == "gather"


def test_a_program_with_10_to_the_9_nodes(tmp_path, good):
    arrays, content, stored = take_apart(good)
    header = msgspec.msgpack.encode([arrays, content])
    node = msgspec.msgpack.encode("nodes") + bytes([0x90 | len(content["nodes"])])
    if node not in header:
        node = msgspec.msgpack.encode("nodes") + b"\x9d"
    assert node in header
    (tmp_path / "c").write_bytes(with_header(header.replace(node, msgspec.msgpack.encode("nodes") + b"\xdd" + struct.pack(">I", 10**9), 1), stored))
    refused(tmp_path / "c", "malformed")
    content["nodes"] = [{"op": "leaf", "shape": []}] * 300_000
    (tmp_path / "c").write_bytes(put_together(arrays, content, stored))
    refused(tmp_path / "c", "more than the limit")


def test_a_small_file_cannot_take_much_memory(tmp_path, good):
    arrays, content, stored = take_apart(good)
    content["info"]["notes"] = ["ab"] * 20_000_000
    (tmp_path / "c").write_bytes(put_together(arrays, content, stored))
    refused(tmp_path / "c", "the limit is")
