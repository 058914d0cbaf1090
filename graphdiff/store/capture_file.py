"""Writing and reading captures. A capture is data: reading one executes nothing, and any damage is one GraphdiffError."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from graphdiff import __version__
from graphdiff.errors import GraphdiffError
from graphdiff.paths import STDOUT, check_output_file, is_special, refuse_inputs, stated_size, write_whole
from graphdiff.program import Node, Output, Program, Site
from graphdiff.store.container import MAGIC, VERSION, ArrayReader, ArrayWriter, LazyDict, LazyList, broken, decode, read_file, unpack
from graphdiff.store.model import Capture, CaptureInfo
from graphdiff.store.probe_parts import ProbeParts, load_probe, store_probe
from graphdiff.store.validate import Invalid, Parts, check_index, check_plain, check_program


class Content(msgspec.Struct):
    """What the container's header holds; arrays are named by their number in the file."""

    info: CaptureInfo
    nodes: list[Node]
    sites: list[Site]
    outputs: list[Output]
    blobs: list[int]
    data: list[tuple[int, int]]
    """(leaf, array)"""
    sources: dict[str, int]
    probe: ProbeParts | None = None


def check_output(path: str | os.PathLike[str], reads: Iterable[str | os.PathLike[str]] = ()) -> None:
    """Raises GraphdiffError if a capture may not be written there: before the run, which may take minutes.

    reads: the files that the command reads. Only a capture, or an empty file, is ever overwritten.
    """
    where = os.fspath(path)
    if where == STDOUT or os.path.abspath(where) in OWN_STREAMS:
        raise GraphdiffError("a capture is no text and is not printed", where=where, fix="name a file as --output, such as engine.cap")
    check_output_file(where, "the capture")
    refuse_inputs(where, reads)
    if not is_special(where) and stated_size(where) and not _starts_as_capture(where):
        raise GraphdiffError("this exists and is no capture", where=where, fix="give another name")


OWN_STREAMS = frozenset({"/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2", "/proc/self/fd/1", "/proc/self/fd/2"})


def _starts_as_capture(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def write_capture(path: str | os.PathLike[str], capture: Capture) -> None:
    """Equal captures give equal bytes. The file appears whole or not at all. Raises GraphdiffError."""
    write_whole(path, encode_capture(capture, os.fspath(path)), "the capture")


def encode_capture(capture: Capture, where: str = "a capture") -> bytes:
    """The bytes of a capture file. Raises GraphdiffError for a capture that could not be read again."""
    program, writer = capture.program, ArrayWriter()
    try:
        content = Content(
            info=msgspec.structs.replace(capture.header, format=VERSION, graphdiff=capture.header.graphdiff or __version__),
            nodes=program.nodes, sites=program.sites, outputs=program.outputs,
            blobs=[writer.add(program.blobs[i]) for i in range(len(program.blobs))],
            data=[(int(n), writer.add(program.data[n].reshape(-1))) for n in sorted(program.data)],
            sources={name: writer.add(np.frombuffer(capture.sources[name].encode(), np.uint8)) for name in sorted(capture.sources)},
            probe=None if capture.probe is None else store_probe(capture.probe, writer))
        data = writer.file(content)
        # Read back what was written: a capture no one can read should fail now, not at compare time.
        loaded = decode_capture(data, where)
        for i in range(len(loaded.program.blobs)):
            loaded.program.blobs[i]
    except (GraphdiffError, Invalid, TypeError, ValueError, OverflowError, RecursionError) as e:
        reason = e.what if isinstance(e, GraphdiffError) else e
        raise GraphdiffError(f"this capture cannot be stored: {reason}", where=where, fix="report this as a bug of graphdiff") from e
    return data


def read_capture(path: str | os.PathLike[str]) -> Capture:
    """A capture from a file. Raises GraphdiffError, in one line, for whatever is wrong with it.

    Index arrays, leaf bits, pins and sources are decompressed and checked on first access, which raises it too.
    """
    return decode_capture(read_file(path), os.fspath(path))


def decode_capture(data: bytes, where: str) -> Capture:
    """A capture from a file's bytes (see read_capture)."""
    raw, reader = unpack(data, where)
    content: Content = decode(raw, Content, where)
    try:
        return _capture(content, reader, where)
    except Invalid as e:
        broken(str(e), where)
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError, MemoryError) as e:
        # No damage known to us ends here; if one does, it is still the file that is wrong.
        broken(f"{type(e).__name__}: {e}", where)


def _capture(content: Content, reader: ArrayReader, where: str) -> Capture:
    if content.info.format != VERSION:
        raise Invalid(f"it says it is in format {content.info.format}")
    check_plain(content.info.model.config)
    parts = Parts(content.nodes, content.sites, content.outputs, [reader.info(i) for i in content.blobs],
                  [(n, reader.info(i)) for n, i in content.data])
    limits = check_program(parts)

    def checked(i: int, array: np.ndarray) -> None:
        try:
            check_index(array, limits[i])
        except Invalid as e:
            broken(str(e), where)

    def text(array: np.ndarray) -> str:
        try:
            return array.tobytes().decode()
        except UnicodeDecodeError:
            broken("a source text is not UTF-8", where)

    for name, i in content.sources.items():
        if reader.info(i).dtype != "uint8":
            raise Invalid(f"the source {name[:60]!r} is not a text")
    program = Program()
    program.nodes, program.sites, program.outputs = content.nodes, content.sites, content.outputs
    lazy: Any = LazyList(reader, content.blobs, checked)
    program.blobs = lazy
    bits: Any = LazyDict(reader, dict(content.data), lambda a: a)
    program.data = bits
    probe = None if content.probe is None else load_probe(content.probe, reader, content.nodes, content.outputs)
    return Capture(content.info, program, probe, LazyDict(reader, content.sources, text))
