"""What a dump holds: graphs, each the output code of one compilation, and how one of them is chosen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from graphdiff.errors import GraphdiffError

AOT_ID = re.compile(r"^# AOT ID: \['([^'\n]{1,40})'\]", re.MULTILINE)
KERNEL_PATH = re.compile(r"^(# kernel path: ).*?([^/\n]+/[^/\n]+)$", re.MULTILINE)
DEVICE = re.compile(r"DeviceProperties\(type='(\w+)'[^)\n]*?\bcc='?(\w+)")
FILE = re.compile(r"# File: (?P<file>[^\n]+?):(?P<line>\d+) in (?P<function>[^,\n]+)(?:, code: (?P<code>[^\n]*))?")
HELPERS = ("/v1/sample/", "/v1/worker/", "/v1/spec_decode/", "/sampler")
KINDS = {"backward": r"(?:\w+, )*tangents_1", "forward": r"(?:\w+, )*primals_1", "inference": "arg0_1"}
"""How AOTAutograd calls the arguments of each kind of graph."""
CALLED = re.compile(r"(\w+)\s*\(")
MOST_LISTED, LONGEST_TITLE, MOST_PLACES = 6, 90, 10_000


@dataclass
class DumpedGraph:
    """Output code of one graph and what stood near it. `damage` says why it cannot be read.

    dynamo, post_grad: the readable graphs that belong to it, or "". name: what the dump calls it (a piece's name).
    frame: FILE.py:FUNCTION that was compiled, if the dump says it.
    """

    text: str
    where: str
    origin: str
    compile_id: str = ""
    dynamo: str = ""
    post_grad: str = ""
    sources: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    torch: str = ""
    name: str = ""
    frame: str = ""
    damage: str = ""
    also: list[str] = field(default_factory=list)
    backward: DumpedGraph | None = None

    def __post_init__(self) -> None:
        self.text = KERNEL_PATH.sub(r"\1\2", self.text)

    @cached_property
    def kind(self) -> str:
        """inference, forward or backward; "" if the code does not say."""
        match = AOT_ID.search(self.text[:4000])
        said = next((k for k in ("inference", "forward", "backward") if match and k in match[1]), "")
        return said or next((k for k, names in KINDS.items() if re.search(rf"^ +{names}\b.* = args$", self.text, re.MULTILINE)), "")

    @cached_property
    def language(self) -> str:
        if "async_compile.triton(" in self.text:
            return "triton"
        if "cpp_pybinding(" in self.text or "async_compile.cpp" in self.text:
            return "c++"
        return "other" if "async_compile." in self.text else "none"

    @cached_property
    def target(self) -> str:
        """`cuda:90`, or the device alone where no kernel tells more, or ""."""
        match = DEVICE.search(self.text)
        if match:
            return f"{match[1]}:{match[2]}"
        device = re.search(r"device='(\w+)", self.text)
        return ("native" if device[1] == "cpu" else device[1]) if device else ""

    @cached_property
    def kernels(self) -> list[str]:
        return re.findall(r"^(\w+) = async_compile\.\w+\(", self.text, re.MULTILINE)

    @cached_property
    def place(self) -> re.Match[str] | None:
        """Where its first op was written."""
        return FILE.search(self.dynamo) or FILE.search(self.post_grad)

    @cached_property
    def function(self) -> str:
        """FILE.py:FUNCTION that was compiled, or "". Graphs name for each op the innermost function, so without the frame it
        is the one of them that none of the others calls."""
        if self.frame:
            return self.frame
        code: dict[tuple[str, str], list[str]] = {}
        for found in list(FILE.finditer(self.dynamo if FILE.search(self.dynamo) else self.post_grad))[:MOST_PLACES]:
            code.setdefault((found["file"], found["function"].strip()), []).append(found["code"] or "")
        names = {name for _, name in code}
        called = {(name, file, caller) for (file, caller), lines in code.items() for line in set(lines) for name in set(CALLED.findall(line)) & names}
        left = [f for f in code if not any(name == f[1] and (file, caller) != f for name, file, caller in called)]
        return f"{left[0][0].rsplit('/', 1)[-1]}:{left[0][1]}" if len(left) == 1 else ""

    @property
    def is_helper(self) -> bool:
        """Of the engine's sampler or runner, not of the model."""
        return bool(self.place and any(h in self.place["file"].replace("\\", "/") for h in HELPERS))

    def title(self) -> str:
        """One line for a list."""
        place = f"{self.place['function'].strip()} at {self.place['file'].rsplit('/', 1)[-1]}:{self.place['line']}" if self.place else self.where
        what = "sampler helper" if self.is_helper else ""
        kernels = f"{len(self.kernels)} {'C++ ' if self.language == 'c++' else ''}kernel{'' if len(self.kernels) == 1 else 's'}"
        parts = [self.name, self.kind, self.compile_id and f"[{self.compile_id}]", place, self.target, kernels, what, self.damage and "damaged"]
        return " ".join(p for p in parts if p)


@dataclass
class Dumps:
    """All graphs of a folder, what was seen besides (counts), and what could not be read."""

    folder: str
    graphs: list[DumpedGraph] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


def pick(dumps: Dumps, number: int | None) -> DumpedGraph:
    """The graph to capture: number `number` (from 1), or the only one that is no backward and no sampler helper.

    Raises GraphdiffError if there is none, several, or the one chosen is damaged.
    """
    graphs = dumps.graphs
    if number is not None:
        if not 1 <= number <= len(graphs):
            raise GraphdiffError(f"no graph {number} in this dump: it has {len(graphs)}", where=dumps.folder, fix=_choose(graphs, graphs))
        return _sound(graphs[number - 1])
    wanted = [g for g in graphs if g.kind != "backward" and not g.is_helper] or graphs
    readable = [g for g in wanted if g.language != "c++"] or wanted
    if len(readable) > 1:
        raise GraphdiffError(f"{len(graphs)} graphs in this dump", where=dumps.folder, fix=_choose(graphs, readable))
    return _sound(readable[0])


def _sound(graph: DumpedGraph) -> DumpedGraph:
    if graph.damage:
        raise GraphdiffError(graph.damage, where=graph.where, fix="copy the file again, whole, or dump again")
    if graph.language == "c++":
        raise GraphdiffError("this graph is C++ code for a CPU, and a dump does not hold the loops that it was written from", where=graph.where,
                             fix="dump where it is compiled for a GPU, or capture it here with --compile --target native")
    return graph


def _choose(graphs: Sequence[DumpedGraph], first: Sequence[DumpedGraph]) -> str:
    """A few graphs with their numbers, `first` those that would be captured were there no others."""
    numbers = sorted(range(len(graphs)), key=lambda i: (not any(graphs[i] is g for g in first), i))
    listed = "; ".join(f"{i + 1} {_cut(graphs[i].title())}" for i in sorted(numbers[:MOST_LISTED]))
    more = f"; and {len(graphs) - MOST_LISTED} more" if len(graphs) > MOST_LISTED else ""
    return f"choose one with --graph N, 1 to {len(graphs)}: {listed}{more}"


def _cut(title: str) -> str:
    return title if len(title) <= LONGEST_TITLE else f"{title[:LONGEST_TITLE - 1]}…"
