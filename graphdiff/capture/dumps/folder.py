"""A folder of dumps -> its graphs. Text is read, bounded in size; nothing is executed, unpickled or followed."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphdiff.capture.dumps.graph import DumpedGraph, Dumps
from graphdiff.capture.dumps.logs import Event, Text, read_texts, read_trace
from graphdiff.errors import GraphdiffError

MOST_FILES = 20_000
LARGEST_FILE = 256 << 20
LARGEST_FOLDER = 1 << 30
LARGEST_CODE = 16 << 20
TORCH = ("2.13", "2.14")
"""Versions whose dumps are known to be read right."""
SUFFIXES = frozenset({"", ".py", ".log", ".txt", ".out", ".err"})
MODULE = re.compile(r"^async_compile = AsyncCompile\(\)$|^# AOT ID: ", re.MULTILINE)
GRAPH = re.compile(r"^(?:class \S+\(torch\.nn\.Module\)|class GraphModule\()|^ {4}def forward\(self, ", re.MULTILINE)
CONFIG = re.compile(r"^torch\._inductor\.config\.([\w.]+ = [^\n]{1,80})$", re.MULTILINE)
TELLING = ("emulate_precision_casts", "combo_kernels", "coordinate_descent_tuning", "max_autotune", "use_fast_math", "fallback_random", "split_reductions",
           "triton.persistent_reductions", "triton.multi_kernel", "loop_ordering_after_fusion", "graph_partition", "deterministic")
"""Inductor's options that may move a rounding or a kernel's border."""


def read_dumps(path: Path, *, any_torch: bool = False) -> Dumps:
    """Every graph with output code below `path` (or in it, if it is a file).

    Raises GraphdiffError if there is none, or it was written by a torch that is not known here (unless any_torch).
    """
    if not path.exists():
        raise GraphdiffError(f"no such folder: {path}", fix="give the folder that TORCH_TRACE, TORCH_LOGS_OUT or the compile cache wrote to")
    dumps = Dumps(str(path))
    total = 0
    for file in _files(path):
        raw = _read(file, dumps)
        total += len(raw)
        if total > LARGEST_FOLDER:
            raise GraphdiffError("more than a GiB of dumps", where=str(path), fix="give the folder of one process or rank")
        _add_file(file, raw, path, dumps)
    _once_each(dumps)
    if not dumps.graphs:
        raise _nothing(dumps)
    for graph in dumps.graphs:
        if graph.torch and not any_torch and not graph.torch.startswith(tuple(f"{v}." for v in TORCH)):
            raise GraphdiffError(f"these dumps are of torch {graph.torch}, whose code is not known here", where=graph.where,
                                 fix=f"dump with torch {', '.join(TORCH)}, or read them all the same with --any-torch")
    return dumps


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    count = 0
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            count += 1
            if count > MOST_FILES:
                raise GraphdiffError(f"more than {MOST_FILES} files", where=str(path), fix="give a folder that holds dumps only")
            file = Path(folder) / name
            if file.is_file() and not file.is_symlink():
                yield file


def _read(file: Path, dumps: Dumps) -> bytes:
    dumps.seen["files"] = dumps.seen.get("files", 0) + 1
    try:
        if file.suffix not in SUFFIXES:
            return b""
        if file.stat().st_size > LARGEST_FILE:
            dumps.missing.append(f"{file.name}: larger than {LARGEST_FILE >> 20} MiB, not read")
            return b""
        with file.open("rb") as stream:
            head = stream.read(4096)
            if b"\0" in head:
                dumps.seen["binary"] = dumps.seen.get("binary", 0) + 1
                return b""
            return head + stream.read(LARGEST_FILE)
    except OSError as error:
        raise GraphdiffError(f"cannot read it: {error.strerror}", where=str(file)) from error


def _add_file(file: Path, raw: bytes, root: Path, dumps: Dumps) -> None:
    if not raw:
        return
    text, where = raw.decode("utf-8", "replace"), str(file.relative_to(root)) if file != root else file.name
    if MODULE.search(text[:20_000]) and "[__" not in text[:2000]:
        dumps.graphs.append(_module(text, where))
        return
    if GRAPH.search(text[:20_000]):
        dumps.seen["graphs"] = dumps.seen.get("graphs", 0) + 1
    if '"has_payload"' in text or '{"str": [' in text or "dedicated_log_torch_trace" in file.name:
        _add_trace(text, where, dumps)
    if "[__" in text:
        _add_texts(text, where, dumps)


def _module(text: str, where: str) -> DumpedGraph:
    return DumpedGraph(text, where, "output code", damage=damage_of(text))


def damage_of(text: str) -> str:
    """Why a module's text is no output code, or ""."""
    if len(text) > LARGEST_CODE:
        return "the output code is longer than 16 MiB"
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place = f" after line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        return f"the output code is cut or changed{place}: it is no Python"
    functions = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    return "" if "call" in functions else "the output code is cut: it has no call()"


# ---- structured traces
def _add_trace(text: str, where: str, dumps: Dumps) -> None:
    trace = read_trace(text)
    if not trace.events:
        return
    dumps.seen["traces"] = dumps.seen.get("traces", 0) + 1
    if trace.cut:
        dumps.seen["cut"] = dumps.seen.get("cut", 0) + 1
        dumps.missing.append(f"what followed in {where}: the trace is cut at its end")
    latest: dict[tuple[str, tuple], Event] = {}
    last: dict[str, Event] = {}
    frames: dict[tuple, str] = {}
    torch, sources = "", {}
    files: dict[int, str] = {}
    for event in trace.events:
        label = event.label
        if label == "torch_version":
            torch = _field(event.payload, "pytorch_version")
        if label == "str" and isinstance(said := event.meta[label], list) and len(said) == 2 and isinstance(said[1], int):
            files[said[1]] = str(said[0])[:400]
        if label == "dynamo_start":
            sources = {}
            frames[event.key] = frames[()] = _frame(event.meta[label], files)
        if label == "describe_source" and isinstance(event.meta[label], dict):
            sources[str(event.meta[label].get("source", ""))[:400]] = None
        if label == "inductor_output_code":
            dumps.graphs.append(_from_event(event, where, torch, latest, last, tuple(sources), frames))
        if event.name == "graph_dump":
            last[label] = event
        if label in ("dynamo_output_graph", "inductor_post_grad_graph", "fx_graph_runnable", "vllm_piecewise_compile_start"):
            latest[label, event.key] = last[label] = event
            if label == "dynamo_output_graph":
                dumps.seen["dynamo"] = dumps.seen.get("dynamo", 0) + 1


def _from_event(event: Event, where: str, torch: str, latest: dict, last: dict[str, Event], sources: tuple[str, ...], frames: dict[tuple, str]) -> DumpedGraph:
    def near(label: str) -> str:
        """Of the same compilation; of a record that names none, the one before."""
        found = latest.get((label, event.key)) or (last.get(label) if event.key[2] is None else None)
        return found.payload if found is not None and found.whole else ""

    compilation = "" if event.key[2] is None else f"{event.key[2]}/{event.key[3]}"
    frame = frames.get(event.key) or (frames.get((), "") if event.key[2] is None else "")
    place = f"{where} line {event.line}"
    damage = damage_of(event.payload) if event.whole else "this output code was cut or changed after the trace was written"
    piece = _piece(near("vllm_piecewise_compile_start"))
    split = last.get(f"vllm_{piece.split(' ')[0]}") if piece else None  # the piece's own graph, whose names the code uses
    graph = (split.payload if split is not None and split.whole else "") if piece else near("dynamo_output_graph")
    runnable = near("fx_graph_runnable")
    config = tuple(c for c in dict.fromkeys(CONFIG.findall(runnable)) if c.split(" ")[0] in TELLING)
    return DumpedGraph(event.payload, place, "TORCH_TRACE", compilation, graph, near("inductor_post_grad_graph"), sources, config, torch,
                       piece, frame, damage)


def _frame(said: Any, files: dict[int, str]) -> str:
    """FILE.py:FUNCTION of the frame that Dynamo compiles: the last of the stack that led to it."""
    stack = said.get("stack") if isinstance(said, dict) else None
    last = stack[-1] if isinstance(stack, list) and stack and isinstance(stack[-1], dict) else {}
    number = last.get("filename")
    file = files.get(number, "") if isinstance(number, int) else ""
    return f"{file.rsplit('/', 1)[-1]}:{str(last.get('name', ''))[:100]}" if file and last.get("name") else ""


def _piece(payload: str) -> str:
    """How vLLM calls a piece: `submod_2 for 1 to 2048 tokens`."""
    name, start, end = (_field(payload, k) for k in ("submod_name", "compile_range_start", "compile_range_end"))
    return f"{name} for {start} to {end} tokens" if name and start else name


def _field(payload: str, name: str) -> str:
    try:
        found = json.loads(payload)
        found = json.loads(found) if isinstance(found, str) else found
    except (ValueError, RecursionError):
        return ""
    return str(found.get(name, ""))[:60] if isinstance(found, dict) else ""


# ---- readable artifacts
def _add_texts(text: str, where: str, dumps: Dumps) -> None:
    near: dict[tuple, Text] = {}
    for found in read_texts(text):
        if found.name == "output_code" and MODULE.search(found.text[:20_000]):
            post_grad = near.pop(("post_grad_graphs", *found.key), None)
            dumps.graphs.append(DumpedGraph(found.text, f"{where} line {found.line}", "TORCH_LOGS", found.key[1], post_grad=post_grad.text if post_grad else "",
                                            damage=damage_of(found.text)))
        elif found.name != "output_code" and (found.name != "post_grad_graphs" or "AFTER POST GRAD" in found.text):
            near[found.name, *found.key] = found


# ---- all together
def _once_each(dumps: Dumps) -> None:
    """A graph that several files or ranks hold is one graph; the one with most around it stays."""
    kept: dict[str, DumpedGraph] = {}
    for graph in dumps.graphs:
        known = kept.setdefault(_plain(graph.text), graph)
        if known is not graph:
            known.also.append(graph.where)
            known.dynamo, known.post_grad = known.dynamo or graph.dynamo, known.post_grad or graph.post_grad
            known.config, known.torch, known.name = known.config or graph.config, known.torch or graph.torch, known.name or graph.name
            known.frame = known.frame or graph.frame
            known.compile_id, known.sources = known.compile_id or graph.compile_id, known.sources or graph.sources
    dumps.graphs = list(kept.values())
    for one, two in zip(dumps.graphs, dumps.graphs[1:]):
        if (one.kind, two.kind, one.compile_id) == ("forward", "backward", two.compile_id) and not one.damage and not two.damage:
            one.backward = two


def _plain(text: str) -> str:
    """Without what differs between places that hold the same code."""
    return re.sub(r"^# (?:AOT ID|kernel path): .*$", "", text, flags=re.MULTILINE).strip()


def _nothing(dumps: Dumps) -> GraphdiffError:
    seen = dumps.seen
    if not seen.get("files"):
        return GraphdiffError("the folder is empty", where=dumps.folder, fix="give the folder that TORCH_TRACE, TORCH_LOGS_OUT or the compile cache wrote to")
    if seen.get("cut"):
        return GraphdiffError("the trace is cut before any output code", where=dumps.folder, fix="copy it again, whole, after the process has ended")
    if seen.get("traces"):
        what = "Dynamo graphs but no output code" if seen.get("dynamo") else "no compiled graph"
        return GraphdiffError(f"the trace has {what}", where=dumps.folder,
                              fix="run with TORCHINDUCTOR_FORCE_DISABLE_CACHES=1 (vLLM: VLLM_DISABLE_COMPILE_CACHE=1 too), backend inductor")
    if seen.get("graphs"):
        return GraphdiffError(f"{seen['graphs']} FX graphs and no output code: what is fused and where it rounds is not in them", where=dumps.folder,
                              fix="vLLM's debug dumps stop before the kernels: set TORCH_TRACE=DIR beside VLLM_DEBUG_DUMP_PATH")
    if seen.get("binary"):
        return GraphdiffError(f"no output code in {seen['files']} files, {seen['binary']} of them binary (pickled cache entries are never opened)",
                              where=dumps.folder, fix="give the folder with Inductor's .py files, or dump with TORCH_TRACE")
    return GraphdiffError(f"no output code of Inductor in {seen['files']} files", where=dumps.folder,
                          fix="dump with TORCH_TRACE=DIR, or TORCH_LOGS=output_code,post_grad_graphs and TORCH_LOGS_OUT=FILE")
