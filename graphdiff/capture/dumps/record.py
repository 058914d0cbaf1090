"""One dumped graph -> its program on stand-in inputs."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from graphdiff.capture.dumps.graph import DumpedGraph
from graphdiff.capture.dumps.signature import FORMATS, Signature, TensorArgument, signature_of
from graphdiff.capture.dumps.standin import standin
from graphdiff.capture.function import Recorded
from graphdiff.capture.fx_sources import dotted_name, is_wrapper
from graphdiff.errors import GraphdiffError
from graphdiff.lower.inductor import Input, SourcePosition, program_from_output_code
from graphdiff.lower.inductor.output_code import OutputCode
from graphdiff.lower.inductor.values import TORCH_FLOATS
from graphdiff.program import Output, Program

PLACE = re.compile(r"^\s*# File: (?P<file>.+?):(?P<line>\d+) in [^,\n]+, code: ?(?P<text>.*)$")
NODE = re.compile(r'^\s*(?P<name>\w+)(?:: "[^"]*")? = ')
PARAMETER = re.compile(r'(\w+) ?: "([^"]*)"')
TYPE = re.compile(r"^(\w+)\[([^\]]*)\]")
MODULE_PARTS = re.compile(r"(?:modules|parameters|buffers)_(.+?)(?=_modules_|_parameters_|_buffers_|_?$)")
MAPPING = re.compile(r"^#   (\w+) => ([\w, ]+)$")


def record_dump(graph: DumpedGraph, *, tokens: int = 8, seed: int = 0) -> tuple[Recorded, list[str]]:
    """Lower the graph's output code on stand-in inputs; also the names of its integer inputs, whose numbers steer it.

    Raises GraphdiffError for what has no lowering.
    """
    signature = signature_of(graph.text, tokens, graph.where, graph.post_grad)
    names = argument_names(graph, signature)
    inputs: list[Input | int] = []
    integers = []
    for argument, name in zip(signature.arguments, names):
        if isinstance(argument, int):
            inputs.append(argument)
            continue
        place = sum(isinstance(x, Input) for x in inputs)
        inputs.append(Input(name, standin(argument, place, seed), argument.dtype, argument.strides))
        if argument.dtype not in TORCH_FLOATS:
            integers.append(name)
    unwritten: list[int] = []
    program, bits = program_from_output_code(graph.text, inputs, name="output_code", sources=positions(graph), modules=modules_of(graph), unwritten=unwritten)
    if not program.outputs:
        raise GraphdiffError("this graph returns no floating-point tensor", where=graph.where, fix="choose another with --graph N")
    program.outputs[:] = _outputs(program, _returned(graph))
    device = graph.target or "a device that it does not name"
    mode = f"torch.compile, Inductor code for {device}{_part(graph)}, dumped by {graph.origin}"
    missing = tuple(f"result {i}: memory that this graph hands out and something else writes" for i in unwritten)
    notes = notes_on(graph, signature, integers)
    return Recorded(program, bits, mode, graph.target, notes, {"output_code": graph.text}, missing), integers


def _part(graph: DumpedGraph) -> str:
    return f", {graph.kind}" if graph.kind in ("forward", "backward") else ""


# ---- names of inputs
def argument_names(graph: DumpedGraph, signature: Signature) -> list[str]:
    """The arguments as the dumped function calls them, if the Dynamo graph of the dump has the same inputs; else as
    the code calls them (`arg0`), which says no more than their place."""
    plain = [f"arg{i}" for i in range(len(signature.arguments))]
    if graph.kind == "backward":
        return [f"arg{i}" if isinstance(a, int) else a.name for i, a in enumerate(signature.arguments)]
    header = re.search(r"def forward\(self, (.*)\):", graph.dynamo)
    found = PARAMETER.findall(header[1]) if header else []
    if len(found) != len(plain) or not all(_agrees(a, kind) for a, (_, kind) in zip(signature.arguments, found)):
        return plain
    written = {_cleaned(s): s for s in graph.sources}
    names = [_as_written(written.get(_cleaned(name), name)) for name, _ in found]
    return names if len(set(names)) == len(names) else plain


def _agrees(argument: TensorArgument | int, kind: str) -> bool:
    """`bf16[4, 64][64, 1]cpu` names this argument's format and sizes (symbolic ones agree with any)."""
    match = TYPE.match(kind)
    if isinstance(argument, int) or match is None:
        return isinstance(argument, int) and match is None
    sizes = [s.strip() for s in match[2].split(",") if s.strip()]
    return FORMATS.get(match[1]) == argument.dtype and len(sizes) == len(argument.shape) and all(
        not s.isdigit() or int(s) == n for s, n in zip(sizes, argument.shape))


def _cleaned(source: str) -> str:
    return re.sub(r"[^a-zA-Z0-9]+", "_", source).strip("_").lower()


def _as_written(source: str) -> str:
    """`L['x']` -> x, `L['args'][0]` -> args[0], `L['self']._modules['lin']._parameters['weight']` -> lin.weight, and the
    same from the placeholder's name where the dump has no other (`l_self_modules_lin_parameters_weight_`)."""
    local = re.match(r"^L\['(\w+)'\]((?:\[[^\]]+\])*)$", source)
    if local:
        return local[1] + local[2]
    parts = MODULE_PARTS.findall(source)
    if parts and source[:2] in ("L_", "l_"):
        return ".".join(parts)
    if source.startswith("L_") and source.endswith("_"):
        return source[2:-1]
    return dotted_name(source) or source


# ---- where nodes were written
def positions(graph: DumpedGraph) -> dict[str, SourcePosition]:
    """By Dynamo node: from the Dynamo graph, else from the ATen graph through the code's own mapping of names."""
    if graph.dynamo:
        return _positions(graph.dynamo)
    aten, found = _positions(graph.post_grad), {}
    if aten:
        for line in graph.text.splitlines():
            match = MAPPING.match(line)
            for name in match[2].split(",") if match else ():
                if name.strip() in aten:
                    found.setdefault(match[1], aten[name.strip()])
    return found


def _positions(text: str) -> dict[str, SourcePosition]:
    found, place = {}, None
    for line in text.splitlines():
        match = PLACE.match(line)
        if match:
            wrapper = is_wrapper(match["file"])
            place = None if wrapper else SourcePosition(file=match["file"][:400], line=int(match["line"][:9]), text=match["text"].strip()[:200])
            continue
        node = NODE.match(line)
        if node and place is not None:
            found[node["name"]] = place
    return found


def modules_of(graph: DumpedGraph) -> dict[str, str]:
    """By Dynamo node: the module whose parameter it reads. A dump tells no more of modules."""
    found: dict[str, str] = {}
    aliases: dict[str, str] = {}
    for line in graph.dynamo.splitlines():
        node = NODE.match(line)
        if node is None:
            continue
        words = re.findall(r"\b\w+\b", line[node.end():].partition(";")[0])
        module = next((m for w in words if (m := aliases.get(w) or _module_of(w))), "")
        if module:
            found[node["name"]] = module
            if "_get_data_attr" in line or words == words[:1]:
                aliases[node["name"]] = module
    return found


def _module_of(word: str) -> str:
    return ".".join(MODULE_PARTS.findall(word)[:-1]) if word[:2] in ("L_", "l_") and "_parameters_" in word else ""


# ---- results
def _returned(graph: DumpedGraph) -> int | None:
    """How many tensors of a forward are the function's results, the rest being saved for the backward; None if all
    are, or the dump does not tell (it has no backward that takes them)."""
    if graph.kind != "forward" or graph.backward is None:
        return None
    saved = [a for a in OutputCode(graph.backward.text).arguments() if not a.startswith("tangents_")]
    returned = returned_by(graph.text)
    kept = [r for r in returned if r.startswith("primals_")]
    fits = len(saved) < len(returned) and set(kept) == {a for a in saved if a.startswith("primals_")}
    return len(returned) - len(saved) if fits else None


def returned_by(text: str) -> list[str]:
    """What call() returns, as it is written."""
    call = OutputCode(text).functions["call"]
    last = next((s.value for s in reversed(call.body) if isinstance(s, ast.Return)), None)
    return [ast.unparse(e) for e in last.elts] if isinstance(last, ast.Tuple) else []


def _outputs(program: Program, count: int | None) -> list[Output]:
    places = {o.name: int(o.name.rpartition("_")[2]) for o in program.outputs}
    kept = [o for o in program.outputs if count is None or places[o.name] < count] or program.outputs
    return [Output(f"output{i}", o.operand) for i, o in enumerate(kept)]


def notes_on(graph: DumpedGraph, signature: Signature, integers: Sequence[str]) -> tuple[str, ...]:
    """What a reader must know: what the numbers are, what could be told and what not."""
    notes = ["a dump holds no weights and no inputs: the numbers are stand-ins, made from the seed, each input's place, sizes and format"]
    if signature.symbols:
        notes.append("symbolic sizes taken as " + ", ".join(f"{s} = {n}" for s, n in signature.symbols.items()))
    if integers:
        notes.append(f"integer inputs ({', '.join(integers[:8])}) are made up, and so is what they select")
    if "unified_attention" in graph.text:
        notes.append("the engine's attention is taken as plain: a dump tells no scale, window or soft cap of its layers")
    notes.extend(_options(graph))
    if graph.kind == "forward":
        told = "" if _returned(graph) is not None else "; what it saves for the backward counts as its results, since the dump does not tell them apart"
        notes.append(f"a forward with gradients{told}")
    if graph.also:
        notes.append(f"the same code {len(graph.also)} more times in the dump")
    return tuple(notes)


def _options(graph: DumpedGraph) -> Sequence[str]:
    found = []
    if "combo_grid_meta" in graph.text:
        found.append("combo kernels are on: which ops such a kernel was made from is not in its comment")
    if graph.config:
        found.append("Inductor options that were set: " + ", ".join(graph.config))
    elif graph.origin != "TORCH_TRACE":
        found.append("Inductor's options are not in this dump")
    return found
