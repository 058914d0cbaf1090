"""The two logs that torch writes: structured traces (TORCH_TRACE) and readable artifacts (TORCH_LOGS).

Both are glog lines. A trace's body is JSON, its payload the lines after it that begin with a tab, hashed; a readable
artifact is one line per line of text, each with the artifact's name in `[__name]`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

GLOG = re.compile(r"^.{0,80}?[VIWEF]\d{4} \d\d:\d\d:\d\d\.\d+ (?P<pid>\d+) (?P<file>[^\n]{1,400}?):(?P<line>\d+)\] (?P<body>.*)$")
RANK = re.compile(r"^\[rank(\d+)\]:")
ARTIFACT = re.compile(r"^(?:\[(?P<id>[^\]\[_]{1,40}[^\]\[]{0,40})\] )?\[__(?P<name>\w+)\] ?(?P<text>.*)$")
CODE_BEGINS, CODE_ENDS = "Output code:", "Output code written to:"


@dataclass(frozen=True)
class Event:
    """One record of a structured trace. `whole`: its payload is what was hashed when it was written."""

    name: str
    meta: dict[str, Any]
    key: tuple[Any, ...]
    line: int
    payload: str = ""
    whole: bool = True

    @property
    def label(self) -> str:
        """What an artifact is called, else the record's own name."""
        inner = self.meta.get(self.name)
        return str(inner["name"]) if self.name in ("artifact", "graph_dump") and isinstance(inner, dict) and "name" in inner else self.name


@dataclass
class Trace:
    """A structured trace. `cut`: its last record is not whole."""

    events: list[Event] = field(default_factory=list)
    cut: bool = False


@dataclass(frozen=True)
class Text:
    """One readable artifact: `output_code`, `post_grad_graphs` ... `key` is who wrote it (process, compile id)."""

    name: str
    key: tuple[str, str]
    line: int
    text: str


def read_trace(text: str) -> Trace:
    """The records of a structured trace; other lines (readable artifacts land in it too) are passed over."""
    trace, lines = Trace(), text.split("\n")
    i = 0
    while i < len(lines):
        match = GLOG.match(lines[i])
        start = i
        i += 1
        if match is None or not match["body"].startswith('{"'):
            continue
        payload = []
        while i < len(lines) and lines[i].startswith("\t"):
            payload.append(lines[i][1:])
            i += 1
        meta = _json(match["body"])
        if meta is None:
            trace.cut = trace.cut or i >= len(lines) - 1
            continue
        event = _event(meta, match["pid"], start + 1, "\n".join(payload))
        trace.events.append(event)
        if not event.whole and i >= len(lines) - 1:
            trace.cut = True
    return trace


def _event(meta: dict[str, Any], pid: str, line: int, payload: str) -> Event:
    name = next(iter(meta), "")
    key = (pid, meta.get("rank"), meta.get("frame_id"), meta.get("frame_compile_id"))
    expected = meta.get("has_payload")
    whole = expected is None or hashlib.md5(payload.encode(), usedforsecurity=False).hexdigest() == expected
    return Event(name, meta, key, line, payload, whole)


def _json(body: str) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_texts(text: str) -> list[Text]:
    """The readable artifacts of a log, in the order in which they end. Output codes begin and end with a line of their
    own; others are one record: lines of one time, process and place."""
    found: list[Text] = []
    open_: dict[tuple[str, str, str], tuple[int, str, list[str]]] = {}

    def close(where: tuple[str, str, str]) -> None:
        line, _, lines = open_.pop(where)
        found.append(Text(where[0], where[1:], line, "\n".join(lines)))

    for number, name, key, stamp, line in _artifact_lines(text):
        where = (name, *key)
        begins = line.startswith(CODE_BEGINS) and not line.startswith(CODE_ENDS) if name == "output_code" else where in open_ and open_[where][1] != stamp
        if where in open_ and (begins or line.startswith(CODE_ENDS)):
            close(where)
        if line.startswith(CODE_ENDS):
            continue
        if name == "output_code" and begins:
            open_[where] = (number, stamp, [])
        elif where in open_:
            open_[where][2].append(line)
        elif name != "output_code":
            open_[where] = (number, stamp, [line])
    for where in list(open_):
        close(where)
    return sorted(found, key=lambda t: t.line)


def _artifact_lines(text: str) -> Iterator[tuple[int, str, tuple[str, str], str, str]]:
    """(line, artifact, (process, compile id), time and place, text) of every artifact's line."""
    for number, line in enumerate(text.split("\n"), 1):
        if "[__" not in line:
            continue
        match = GLOG.match(line)
        inner = ARTIFACT.match(match["body"]) if match else None
        if match and inner:
            rank = RANK.match(line)
            stamp = line[:match.start("body")]
            yield number, inner["name"], (f"{rank[1] if rank else ''}/{match['pid']}", inner["id"] or ""), stamp, inner["text"]
