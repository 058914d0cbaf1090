"""Bytes of a capture file: a checked header and compressed number arrays. Nothing in it is ever executed.

    6 bytes magic, uint16 version, uint64 compressed header length, uint64 header length, uint32 crc (little-endian)
    header, zlib: msgpack (array descriptions, content)
    the arrays, back to back in the order described, zlib each

An array's bytes are stored plane by plane (all first bytes, then all second ...), wide integers as differences to the
one before: index arrays and sorted hashes shrink. Every length is checked against the file before memory is taken.
"""

from __future__ import annotations

import hashlib
import math
import os
import stat
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn

import msgspec
import numpy as np

from graphdiff.errors import Damage, GraphdiffError

MAGIC = b"\x89GDCAP"
VERSION = 1
PREFIX = struct.Struct("<6sHQQI")
LEVEL = 6
MAX_FILE = 2 << 30
MAX_HEADER = 64 << 20
HEADER_RATIO = 128
"""How many times its compressed length a header may have (after the first 4 MiB). Real ones stay near 10."""
MAX_TOTAL = 4 << 30
"""Bytes of all arrays, decompressed."""
MAX_CONTAINERS = 2 << 20
"""Lists and maps in a header (each is some 100 bytes of memory for one byte of file)."""
MAX_ARRAYS = 1 << 18
MAX_DIMENSIONS = 32
MAX_ELEMENTS = 1 << 33
"""Elements of one array or node: what the builder's element numbers can tell apart."""

DTYPES = {"bool": "|b1", "int8": "|i1", "uint8": "|u1", "uint16": "<u2", "int32": "<i4", "int64": "<i8",
          "uint64": "<u8", "float32": "<f4", "float64": "<f8"}
UNSIGNED = {"int32": "<u4", "int64": "<u8", "uint64": "<u8"}
"""Types stored as differences (modulo 2**bits), and the type the difference is taken in."""

CAPTURE_AGAIN = "the file is damaged or incomplete; capture again, or copy it again from where it was made"


class ArrayInfo(msgspec.Struct, frozen=True, array_like=True):
    """One stored array: its type and shape, and its compressed bytes' length and crc32."""

    dtype: Literal["bool", "int8", "uint8", "uint16", "int32", "int64", "uint64", "float32", "float64"]
    shape: tuple[int, ...]
    stored: int
    crc: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.elements * np.dtype(DTYPES[self.dtype]).itemsize


class Frame(msgspec.Struct, array_like=True):
    """The header: what arrays follow, and the content that refers to them by number."""

    arrays: list[ArrayInfo]
    content: msgspec.Raw


# ---- writing
class ArrayWriter:
    """Collects arrays; equal ones are stored once."""

    def __init__(self) -> None:
        self.infos: list[ArrayInfo] = []
        self.chunks: list[bytes] = []
        self._known: dict[tuple[str, tuple[int, ...], bytes], int] = {}

    def add(self, array: np.ndarray) -> int:
        """The array's number. Raises TypeError for a type that is not one of DTYPES."""
        name = array.dtype.name
        if name not in DTYPES:
            raise TypeError(f"arrays of {name} cannot be stored")
        plain = np.ascontiguousarray(array, DTYPES[name])
        key = (name, array.shape, hashlib.sha256(plain.data).digest())
        if key not in self._known:
            stored = zlib.compress(_to_planes(plain.reshape(-1), name), LEVEL)
            self._known[key] = len(self.infos)
            self.infos.append(ArrayInfo(name, tuple(int(n) for n in array.shape), len(stored), zlib.crc32(stored)))
            self.chunks.append(stored)
        return self._known[key]

    def file(self, content: Any) -> bytes:
        """The whole file: `content` encoded, then the arrays. Raises ValueError where it is over a limit."""
        encoder = msgspec.msgpack.Encoder(order="deterministic", enc_hook=_plain_scalar)
        header = encoder.encode(Frame(self.infos, msgspec.Raw(encoder.encode(content))))
        if len(header) > MAX_HEADER or _containers(header) > MAX_CONTAINERS:
            raise ValueError(f"its description takes {len(header)} bytes, more than a capture may hold")
        if len(self.infos) > MAX_ARRAYS:
            raise ValueError(f"it has {len(self.infos)} arrays, more than a capture may hold")
        if sum(a.nbytes for a in self.infos) > MAX_TOTAL:
            raise ValueError(f"its numbers take more than {MAX_TOTAL >> 30} GiB")
        packed = zlib.compress(header, LEVEL)
        if len(header) > header_limit(len(packed)):
            raise ValueError("its description is too repetitive")
        prefix = PREFIX.pack(MAGIC, VERSION, len(packed), len(header), zlib.crc32(packed))
        return b"".join([prefix, packed, *self.chunks])


def _plain_scalar(x: Any) -> Any:
    if isinstance(x, np.generic):
        return x.item()
    raise TypeError(f"{type(x).__name__} cannot be stored")


def _to_planes(flat: np.ndarray, name: str) -> bytes:
    if name in UNSIGNED and flat.size:
        wide = flat.view(UNSIGNED[name])
        flat = np.concatenate((wide[:1], wide[1:] - wide[:-1]))
    if flat.itemsize == 1:
        return flat.tobytes()
    return flat.view(np.uint8).reshape(flat.size, flat.itemsize).T.tobytes()


# ---- reading
def read_file(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a regular file of at most MAX_FILE that starts as a capture does. Raises GraphdiffError."""
    where = os.fspath(path)
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise GraphdiffError("a folder is not a capture", where=where, fix="name the capture file in it")
        if not stat.S_ISREG(status.st_mode):
            raise GraphdiffError("not a regular file", where=where, fix="copy the capture into a file first")
        if status.st_size > MAX_FILE:
            raise GraphdiffError(f"{status.st_size} bytes is more than a capture may have ({MAX_FILE})", where=where,
                                 fix="capture fewer layers, or without --keep-weights")
        with open(path, "rb") as file:
            start = file.read(PREFIX.size)
            check_start(start, where)
            return start + file.read(status.st_size)
    except FileNotFoundError:
        raise GraphdiffError("no such capture file", where=where, fix="check the path, or make it with `graphdiff capture`") from None
    except (OSError, ValueError, MemoryError) as e:
        reason = getattr(e, "strerror", None) or str(e) or "not enough memory"
        raise GraphdiffError(f"the capture cannot be read: {reason}", where=where, fix="check the path and its permissions") from None


FOREIGN = ((b"PK\x03\x04", "a zip archive (a torch checkpoint?)"), (b"\x1f\x8b", "a gzip file"), (b"GGUF", "a GGUF model"),
           (b"\x7fELF", "a program"), (b"\x80", "a pickle"))


def check_start(start: bytes, where: str) -> None:
    """Raises GraphdiffError unless the first bytes are those of a capture in this version of the format."""
    if not start:
        raise GraphdiffError("an empty file is not a capture", where=where, fix="capture again")
    if not start.startswith(MAGIC):
        if MAGIC.startswith(start[: len(MAGIC)]):
            broken("it ends within its first bytes", where)
        kind = next((name for magic, name in FOREIGN if start.startswith(magic)), None)
        if kind is None and start[8:9] == b"{":
            kind = "a safetensors file"
        if kind is None and all(32 <= b < 127 or b in b"\t\r\n" for b in start):
            kind = "a text file"
        raise GraphdiffError(f"{kind or 'this file'} is not a capture", where=where,
                             fix="name a file made by `graphdiff capture`, or FILE.py:FN, vllm:MODEL, transformers:MODEL")
    if len(start) < 8:
        broken("it ends within its first bytes", where)
    version = int.from_bytes(start[6:8], "little")
    if version != VERSION:
        raise GraphdiffError(f"the capture is in format {version}, this graphdiff reads format {VERSION}", where=where,
                             fix="install the graphdiff that wrote it, or capture again with this one")
    if len(start) < PREFIX.size:
        broken("it ends within its first bytes", where)


def broken(detail: str, where: str) -> NoReturn:
    """Raise the error for damage. `detail` may quote the file: it is cut, and stripped of what a terminal would obey."""
    detail = "".join(c if c.isprintable() else "?" for c in detail[:300])
    raise Damage(f"not a readable capture: {detail}", where=where, fix=CAPTURE_AGAIN) from None


def unpack(data: bytes, where: str) -> tuple[msgspec.Raw, ArrayReader]:
    """Content (msgpack, still to be decoded by type) and arrays of a file's bytes. Raises GraphdiffError."""
    check_start(data[: PREFIX.size], where)
    _, _, packed, size, crc = PREFIX.unpack_from(data)
    view = memoryview(data)
    if packed > len(data) - PREFIX.size:
        broken(f"it is cut short at {len(data)} bytes", where)
    if size > (limit := header_limit(packed)):
        broken(f"its description is declared as {size} bytes, the limit is {limit}", where)
    compressed = view[PREFIX.size:PREFIX.size + packed]
    if zlib.crc32(compressed) != crc:
        broken("the checksum of its description is wrong", where)
    header = inflate(compressed, size, where, "its description")
    if _containers(header) > MAX_CONTAINERS:
        broken("its description has too many parts", where)
    frame = decode(header, Frame, where)
    return frame.content, ArrayReader(frame.arrays, view[PREFIX.size + packed:], where)


def header_limit(packed: int) -> int:
    return min(MAX_HEADER, (4 << 20) + HEADER_RATIO * packed)


def decode(data: bytes | msgspec.Raw, kind: Any, where: str) -> Any:
    """Typed msgpack, or GraphdiffError."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except RecursionError:
        broken("its description is nested too deeply", where)
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, MemoryError) as e:
        broken(f"its description is malformed, {e}", where)


def inflate(stored: memoryview | bytes, size: int, where: str, what: str) -> bytes:
    """Exactly `size` bytes out of zlib data, never more memory than that. Raises GraphdiffError."""
    # zlib shrinks by at most 1032 to 1: a larger claim is refused before anything is allocated.
    if size > 1040 * len(stored):
        broken(f"{what} cannot be as large as declared", where)
    try:
        machine = zlib.decompressobj()
        # A length of 0 would mean unlimited. One byte more than declared shows data that is too long.
        out = machine.decompress(stored, size + 1)
    except (zlib.error, MemoryError, OverflowError) as e:
        broken(f"{what} cannot be decompressed ({e})", where)
    if len(out) != size or not machine.eof or machine.unused_data:
        broken(f"{what} does not have its declared size", where)
    return out


def _containers(header: bytes) -> int:
    """An upper bound for the lists and maps in msgpack data (bytes inside strings and numbers count too)."""
    b = np.frombuffer(header, np.uint8)
    return int(np.count_nonzero((b >= 0x80) & (b < 0xA0)) + np.count_nonzero((b >= 0xDC) & (b < 0xE0)))


class ArrayReader:
    """Arrays of a file, decompressed when asked for and then kept; read-only, since equal arrays are one."""

    def __init__(self, infos: list[ArrayInfo], data: memoryview, where: str) -> None:
        self.infos, self.where = infos, where
        self._data, self._starts = data, [0]
        self._kept: dict[int, np.ndarray] = {}
        if len(infos) > MAX_ARRAYS:
            broken(f"it describes {len(infos)} arrays, the limit is {MAX_ARRAYS}", where)
        total = 0
        for i, a in enumerate(infos):
            what = f"array {i}"
            if len(a.shape) > MAX_DIMENSIONS or any(not 0 <= n <= MAX_ELEMENTS for n in a.shape):
                broken(f"{what} has the shape {_short(a.shape)}", where)
            total += a.nbytes
            if total > MAX_TOTAL:
                broken(f"its arrays are declared to take more than {MAX_TOTAL} bytes", where)
            if a.stored < 0 or a.nbytes > 1040 * a.stored:
                broken(f"{what} cannot be as large as declared", where)
            self._starts.append(self._starts[-1] + a.stored)
        if self._starts[-1] != len(data):
            short = self._starts[-1] > len(data)
            broken("it is cut short" if short else f"{len(data) - self._starts[-1]} bytes too many at its end", where)

    def info(self, i: int) -> ArrayInfo:
        if not 0 <= i < len(self.infos):
            broken(f"it refers to array {i} of {len(self.infos)}", self.where)
        return self.infos[i]

    def get(self, i: int) -> np.ndarray:
        """Array i. Raises GraphdiffError where its bytes are damaged."""
        if i not in self._kept:
            self._kept[i] = self._load(i)
        return self._kept[i]

    def _load(self, i: int) -> np.ndarray:
        info = self.info(i)
        stored = self._data[self._starts[i]:self._starts[i + 1]]
        if zlib.crc32(stored) != info.crc:
            broken(f"the checksum of array {i} is wrong", self.where)
        raw = np.frombuffer(inflate(stored, info.nbytes, self.where, f"array {i}"), np.uint8)
        dtype = np.dtype(DTYPES[info.dtype])
        if info.dtype == "bool" and raw.size and raw.max() > 1:
            broken(f"array {i} holds numbers that are no truth values", self.where)
        if dtype.itemsize > 1:
            raw = np.ascontiguousarray(raw.reshape(dtype.itemsize, info.elements).T).reshape(-1)
        flat = raw.view(UNSIGNED.get(info.dtype, dtype))
        if info.dtype in UNSIGNED:
            flat = np.cumsum(flat, dtype=flat.dtype).view(dtype)
        flat = flat.reshape(info.shape)
        flat.flags.writeable = False
        return flat


def _short(x: Any) -> str:
    text = str(x)
    return text if len(text) <= 60 else text[:60] + "..."


class LazyList(Sequence[np.ndarray]):
    """Arrays by position, each loaded and checked when first asked for."""

    def __init__(self, reader: ArrayReader, ids: list[int], check: Callable[[int, np.ndarray], None]) -> None:
        self._reader, self._ids, self._check = reader, ids, check
        self._checked: set[int] = set()

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        i = range(len(self._ids))[i]
        array = self._reader.get(self._ids[i])
        if i not in self._checked:
            self._check(i, array)
            self._checked.add(i)
        return array


class LazyDict(Mapping[Any, Any]):
    """Values made from arrays when first asked for."""

    def __init__(self, reader: ArrayReader, ids: dict[Any, int], make: Callable[[np.ndarray], Any]) -> None:
        self._reader, self._ids, self._make = reader, ids, make

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._ids)

    def __contains__(self, key: object) -> bool:
        return key in self._ids

    def __getitem__(self, key: Any) -> Any:
        return self._make(self._reader.get(self._ids[key]))
