"""The text of a self-contained kernels package: torch and triton only, one readable file per kind of region.

Each region becomes a pair of custom operators (forward and backward) with a fake and an autograd formula, so that
torch.compile, checkpointing, autocast, FSDP and DDP see one differentiable op. Equal regions give equal bytes.
"""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from graphdiff import __version__
from graphdiff.emit.backward import Backward, NoDerivative, backward_part
from graphdiff.emit.ir import Input, Part, RegionIR
from graphdiff.emit.spelling import CannotSpell
from graphdiff.emit.torch_reference import function_text
from graphdiff.emit.triton_source import Shape, Writer, kernel_text, power_of_two, shape_of, strides_of, wrap
from graphdiff.errors import GraphdiffError

TITLES = {
    "rope": "Rotary embedding of queries and keys",
    "qk_norm_rope": "Norm of each query and key head, then rotary embedding",
    "gated_activation": "Gated activation",
    "residual_rms_norm": "Residual addition and RMSNorm",
    "rms_norm": "RMSNorm",
    "layer_norm": "LayerNorm",
    "pointwise": "Elementwise region",
}
DESCRIPTIONS = {
    "rope": "Both products and their sum stay in FP32; the rotated value is rounded once, by the store.",
    "qk_norm_rope": """Normalised rows, their product with the weight, both products of the rotation and their sum stay in FP32;
the rotated value is rounded once, by the store. The row is read whole for its sum of squares and again by halves for
the rotation (the second read comes from the cache).""",
    "gated_activation": "The activation stays in FP32 until it is multiplied; the product is rounded once, by the store.",
    "residual_rms_norm": """The norm reads the sum of the residual before it is rounded. The residual itself is rounded once per layer, by the
store. After attention the sum attn + residual is normed and forgotten; the next norm computes mlp + (attn + residual)
from the same addends, so the inner sum is never rounded. Addends are passed on, not the FP32 sum: that moves half the
bytes, forward.

`carry` has no memory behind it (one element, expanded). It stands for the unrounded attn + residual in autograd's
graph: through it the next norm hands back the gradient of that sum, which would otherwise be added outside, once for
each addend and with one more rounding.""",
    "rms_norm": "Everything between the load and the one rounding of the store is FP32.",
    "layer_norm": "Everything between the load and the one rounding of the store is FP32.",
    "pointwise": "Everything between the loads and the one rounding of the store is FP32.",
}


_POINTER = {"bfloat16": "*bf16", "float16": "*fp16", "float32": "*fp32"}


@dataclass(frozen=True)
class Tensor:
    """An argument of the operator. shape: rows, heads, table, vector or carry; width: lanes of its rows."""

    name: str
    shape: str
    width: int
    dtype: str
    differentiable: bool = True


@dataclass(frozen=True)
class Signature:
    """`outputs = op(*inputs)`, in order. Tensors of shape rows are [..., width], heads [..., steps, heads, width],
    tables [batch or 1, steps, width] (only the lanes the kernel reads), vectors [width]."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class EmittedRegion:
    """One region's code. `module` is the file of the package it goes to; `text` its section there."""

    name: str
    kind: str
    op_name: str
    module: str
    forward_source: str
    """The Triton device functions and kernel of the forward."""
    backward_source: str
    reference_source: str
    text: str
    signature: Signature
    meta: dict[str, Any] = field(default_factory=dict)
    """fingerprint, engine kernels and modules, nodes, shapes of tiles, why there is no backward if there is none."""


def emit_region(region: RegionIR, *, versions: Mapping[str, str] | None = None, target: str = "", notes: Mapping[int, str] | None = None,
                namespace: str = "graphdiff_patch", widest_tile: int | None = None) -> EmittedRegion:
    """Kernels of one region. notes: node of the engine's program -> comment for the value it computes.

    Raises GraphdiffError with the reason if no kernel can be made.
    """
    try:
        return _Emitter(region, dict(versions or {}), target, dict(notes or {}), namespace, widest_tile).run()
    except (CannotSpell, NoDerivative) as why:
        raise GraphdiffError(f"no kernel for {region.name or region.kind}: {why}", where=", ".join(region.modules)) from why


def emit_package(regions: Iterable[EmittedRegion]) -> dict[str, str]:
    """path -> text. The same regions in any order of layers give the same bytes; equal regions are written once."""
    kinds: dict[str, dict[str, EmittedRegion]] = {}
    for r in regions:
        known = kinds.setdefault(r.module, {})
        if r.name in known and known[r.name].meta["fingerprint"] != r.meta["fingerprint"]:
            raise GraphdiffError(f"two different regions are called {r.name}", where=", ".join(r.meta["modules"]), fix="emit them in packages of their own")
        known.setdefault(r.name, r)
    header = f"Written by graphdiff {__version__}. Made for one model; widths are constants here."
    files = {"_common.py": _template("common.py.j2").render(header=header)}
    exports = []
    for module in sorted(kinds):
        found = [kinds[module][n] for n in sorted(kinds[module])]
        mirrors = sorted({line for r in found for line in r.meta["mirrors"]})
        files[f"{module}.py"] = _tidy(_template("region.py.j2").render(
            title=TITLES[module], description=DESCRIPTIONS[module], header="\n".join([*mirrors, header]), regions=found))
        exports.append((module, [r.name for r in found]))
    files["__init__.py"] = _template("init.py.j2").render(header=header, exports=exports)
    return {path: files[path].rstrip() + "\n" for path in sorted(files)}


@cache
def _template(name: str):
    import jinja2

    folder = Path(__file__).parent / "templates"
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(folder), autoescape=False, undefined=jinja2.StrictUndefined,
                                     keep_trailing_newline=True)
    return environment.get_template(name)


def _tidy(text: str) -> str:
    """Only the imports that are used; two blank lines at most."""
    start, end = text.index("from ._common import ("), text.index(")\n", text.index("from ._common import (")) + 2
    names = [n.strip() for n in text[text.index("(", start) + 1:end - 2].replace("\n", " ").split(",")]
    used = [n for n in names if any(c in text[end:] for c in (f"{n}(", f"{n}.", f"@{n}"))]
    joined = wrap(f"from ._common import {', '.join(used)}", 110)
    if "\n" in joined:
        lines = joined.splitlines()
        joined = lines[0].replace("import ", "import (\n    ") + "".join("\n    " + line.strip() for line in lines[1:]) + ")"
    text = text[:start] + joined + "\n" + text[end:]
    while "\n\n\n\n" in text:
        text = text.replace("\n\n\n\n", "\n\n\n")
    return text


class _Emitter:
    def __init__(self, region: RegionIR, versions: dict[str, str], target: str, notes: dict[int, str], namespace: str, widest: int | None) -> None:
        self.region, self.versions, self.target, self.notes, self.namespace = region, versions, target, notes, namespace
        self.widest = {} if widest is None else {"widest": widest}
        self.parts = region.parts
        self.back: list[Backward] = [backward_part(p) for p in self.parts]
        self.name = region.name
        self.carries = any(p.carries >= 0 for p in self.parts)
        self.carried = any(p.carried >= 0 for p in self.parts)

    def run(self) -> EmittedRegion:
        shapes, back_shapes = self._shapes(self.parts), self._shapes(self.back)
        forward = self._kernels(self.parts, shapes, f"_{self.name}", self.notes)
        backward = self._kernels(self.back, back_shapes, f"_{self.name}_backward", {})
        references = self._references(self.parts, "", self.notes) + "\n\n" + self._references(self.back, "_backward", {})
        signature = self._signature()
        text = "\n\n".join([self._heading(), forward, backward, "# The same in plain torch: the CPU path.", references,
                            self._forward_op(shapes), self._backward_op(back_shapes), self._autograd(), self._face(signature)])
        meta = {
            "fingerprint": self.region.fingerprint, "modules": self.region.modules, "kernels": self.region.kernels,
            "nodes": self.region.nodes, "mirrors": [self._mirrors()], "shapes": [vars(s) for s in shapes],
            "backward_shapes": [vars(s) for s in back_shapes],
            "launches": {"forward": self._types(self.parts, shapes), "backward": self._types(self.back, back_shapes)}, "carries": self.carries, "carried": self.carried,
            "stored_lanes": {"forward": self._stored(self.parts, shapes), "backward": self._stored(self.back, back_shapes)},
        }
        return EmittedRegion(self.name, self.region.kind, f"{self.namespace}::{self.name}", self.region.kind, forward, backward, references,
                             text + "\n", signature, meta)

    def _shapes(self, parts: list) -> list[Shape]:
        return [shape_of(p, **self.widest) for p in parts]

    def _mirrors(self) -> str:
        kernels = ", ".join(sorted({k for _, k in self.region.kernels}))
        engine = f"vLLM {self.versions['vllm']}" if "vllm" in self.versions else "the engine"
        torch = f", generated by Inductor of torch {self.versions['torch'].partition('+')[0]}" if "torch" in self.versions else ""
        return textwrap.fill(f"{self.name} mirrors {kernels} of {engine}{torch}{f' for {self.target}' if self.target else ''}.", 116,
                             break_long_words=False)

    def _heading(self) -> str:
        modules = ", ".join(sorted({_folded(m) for m in self.region.modules}))
        return f"# ---- {self.name}" + (f" (engine: {modules})" if modules else "")

    # ---- text of kernels
    def _kernels(self, parts: list, shapes: list[Shape], name: str, notes: dict[int, str]) -> str:
        texts, functions, known = [], [], {}
        for part, shape in zip(parts, shapes):
            key = (part.text(), shape)
            if key not in known:
                known[key] = f"{name}_rows" if not known else f"{name}_rows_{part.name}"
                texts.append(Writer(part, known[key], shape, self._comments(part, notes)).text())
            functions.append(known[key])
        texts.append(kernel_text(f"{name}_kernel", parts, functions, shapes, self._kernel_tensors(parts)))
        return "\n\n".join(texts)

    @staticmethod
    def _comments(part: Part, notes: dict[int, str]) -> dict[int, str]:
        found = {}
        for v, nodes in part.origin.items():
            texts = list(dict.fromkeys(notes[n] for n in nodes if n in notes))
            if texts:
                found[v] = "\n".join(texts)
        return found

    def _references(self, parts: list, suffix: str, notes: dict[int, str]) -> str:
        texts = []
        for part in parts:
            name = self._reference(parts, part, suffix)
            text = function_text(part, name, self._comments(part, notes))
            if text not in texts:
                texts.append(text)
        return "\n\n".join(texts)

    def _reference(self, parts: list, part: Part, suffix: str) -> str:
        same = [p for p in parts if p.text() == part.text()]
        return f"_{self.name}{suffix}_reference" + (f"_{part.name}" if same[0] is not parts[0] else "")

    @staticmethod
    def _inputs(parts: list) -> dict[str, tuple[Part, Input]]:
        """Tensor name -> (part, input): activations first, then gradients, weights, tables."""
        found: dict[str, tuple[Part, Input]] = {}
        for role in ("grad", "row", "vector", "table"):
            for part in parts:
                for i in part.inputs:
                    if i.role == role:
                        found.setdefault(part.bind[i.name], (part, i))
        return found

    def _kernel_tensors(self, parts: list) -> list[str]:
        names = []
        for tensor, (_, i) in self._inputs(parts).items():
            names += [tensor, *(f"{tensor}_{s.rpartition('_')[2]}" for s in strides_of(i))]
        for part in parts:
            names += [part.bind[o.name] for o in (*part.outputs, *part.vectors)]
        return names

    @staticmethod
    def _stored(parts: list, shapes: list[Shape]) -> list[int]:
        """Lanes of one row of a tile that each part stores rounded."""
        return [sum(min(power_of_two(p.lanes.count), s.block) for o in part.outputs for p in o.pieces) for part, s in zip(parts, shapes)]

    def _types(self, parts: list, shapes: list[Shape]) -> dict[str, Any]:
        """What one needs to compile a kernel without running it: argument types, constants, warps."""
        types: dict[str, str] = {}
        for tensor, (part, i) in self._inputs(parts).items():
            dtype = i.dtype or next(o.dtype for p in self.parts for o in p.outputs if p.name == part.name)
            types[tensor] = _POINTER[dtype]
            types |= {f"{tensor}_{s.rpartition('_')[2]}": "i32" for s in strides_of(i)}
        for part, own in zip(parts, self.parts):
            for o in part.outputs:
                types[part.bind[o.name]] = _POINTER[o.dtype or own.inputs[0].dtype]
            types |= {part.bind[o.name]: "*fp32" for o in part.vectors}
        constants: dict[str, Any] = {}
        for part, shape in zip(parts, shapes):
            at = f"_{part.name.upper()}" if part.name else ""
            constants |= {f"ROWS{at}": shape.rows, f"BLOCK{at}": shape.block}
        if any(p.vectors for p in parts):
            constants["WEIGHT_GRADIENT"] = True
        return {"types": types, "constants": constants, "warps": max(s.warps for s in shapes)}

    # ---- signature
    def _signature(self) -> Signature:
        inputs = [Tensor(n, self._shape_name(i), i.width, i.dtype, i.role in ("row", "vector")) for n, (_, i) in self._inputs(self.parts).items()]
        outputs = [Tensor(p.bind[o.name], "heads" if p.per_head else "rows", o.width, o.dtype) for p in self.parts for o in p.outputs]
        if self.carried:
            at = max(k for k, t in enumerate(inputs) if t.shape == "rows") + 1
            behind = self._behind()
            inputs = [Tensor(t.name, t.shape, t.width, t.dtype, t.differentiable and t.name not in behind) for t in inputs]
            inputs.insert(at, Tensor("carry", "carry", self.parts[0].width, inputs[0].dtype))
        if self.carries:
            outputs.append(Tensor("carry", "carry", self.parts[0].width, inputs[0].dtype))
        return Signature(tuple(inputs), tuple(outputs))

    def _behind(self) -> set[str]:
        """Tensors whose gradient goes through the carried sum."""
        return {p.bind[p.lanes_of_load(v)[0]] for p in self.parts if p.carried >= 0 for v in p.needed([p.carried]) if p.values[v].op == "load"}

    @staticmethod
    def _shape_name(i: Input) -> str:
        return {"vector": "vector", "table": "table"}.get(i.role, "heads" if i.per_head else "rows")

    # ---- operators
    def _forward_op(self, shapes: list[Shape]) -> str:
        signature = self._signature()
        arguments = ", ".join(f"{t.name}: Tensor" for t in signature.inputs)
        results = self._results(signature)
        names = [t.name for t in signature.outputs if t.name != "carry" or not self.carries]
        lines = [f'@torch.library.custom_op("{self.namespace}::{self.name}", mutates_args=())',
                 f"def _{self.name}({arguments}) -> {results}:"]
        body, likes = self._prepared(self.parts)
        lines += body
        allocated = [f"{p.bind[o.name]} = torch.empty({self._shape_of(p, o.width)}, dtype=torch.{o.dtype}, device={likes[p.name]}.device)"
                     for p in self.parts for o in p.outputs]
        lines.append(f"    if not on_gpu({next(iter(likes.values()))}):")
        lines += self._reference_calls(self.parts, "", 8)
        lines.append("    else:")
        lines += ["        " + line for line in [*allocated, *self._launch(self.parts, shapes, f"_{self.name}_kernel")]]
        lines.append(f"    return {', '.join([*(self._reshaped(p, p.bind[o.name]) for p in self.parts for o in p.outputs), *([f'_carry({self._first(self.parts[0])}, shape)'] if self.carries else [])])}")
        fake = ["@_%s.register_fake" % self.name, f"def _({arguments}):", "    return " + ", ".join(
            [f"{self._first(p)}.new_empty({self._first(p)}.shape, dtype=torch.{o.dtype})" for p in self.parts for o in p.outputs]
            + ([f"_carry({self._first(self.parts[0])}, {self._first(self.parts[0])}.shape)"] if self.carries else []))]
        carry = ['def _carry(x: Tensor, shape: torch.Size) -> Tensor:', '    """One element, expanded: a place in the graph, no memory. Nobody reads it."""',
                 "    return x.new_empty(()).expand(shape)", "", ""] if self.carries else []
        return wrap("\n".join([*carry, *lines, "", "", *fake])) + "\n"

    @staticmethod
    def _results(signature: Signature) -> str:
        return "Tensor" if len(signature.outputs) == 1 else f"tuple[{', '.join(['Tensor'] * len(signature.outputs))}]"

    def _first(self, part: Part) -> str:
        """The tensor whose shape says how many rows there are. A linear region's derivative reads gradients only."""
        return next(part.bind[i.name] for role in ("row", "grad") for i in part.inputs if i.role == role)

    def _prepared(self, parts: list) -> tuple[list[str], dict[str, str]]:
        """Lines that turn every argument into rows, and one activation per part."""
        likes = {p.name: self._first(p) for p in parts}
        lines = [f"    shape{self._at(p)} = {likes[p.name]}.shape" for p in parts]
        inputs = self._inputs(parts)
        for tensor, (part, i) in inputs.items():
            if i.role in ("row", "grad"):
                view = "as_heads" if i.per_head else "as_rows"
                lines.append(f'    {tensor} = {view}({tensor}, {i.width}, "{tensor}")')
        for tensor, (part, i) in inputs.items():
            if i.role == "table":
                lines.append(f'    {tensor} = as_table({tensor}, {likes[part.name]}, {i.width}, "{tensor}")')
        return lines, likes

    @staticmethod
    def _at(part: Part) -> str:
        return f"_{part.name}" if part.name else ""

    def _shape_of(self, part: Part, width: int) -> str:
        like = self._first(part)
        return f"(*{like}.shape[:-1], {width})"

    def _reshaped(self, part: Part, name: str) -> str:
        return f"{name}.view(shape{self._at(part)})"

    def _reference_calls(self, parts: list, suffix: str, indent: int) -> list[str]:
        lines = []
        for part in parts:
            arguments = [part.bind[i.name] for i in part.inputs] + [self._gradient_dtype(part, o) for o in part.outputs if not o.dtype]
            results = [part.bind[o.name] for o in (*part.outputs, *part.vectors)]
            lines.append(" " * indent + f"{', '.join(results)} = {self._reference(parts, part, suffix)}({', '.join(arguments)})")
        return lines

    def _gradient_dtype(self, part: Part, o: Any) -> str:
        """A gradient has the type of what it is the gradient of."""
        name = o.name.removeprefix("grad_")
        if name == "carry":
            name = next(i.name for i in part.inputs if i.role == "row")
        return f"{part.bind[name] if name in {i.name for i in part.inputs} else self._first(part)}.dtype"

    def _launch(self, parts: list, shapes: list[Shape], kernel: str) -> list[str]:
        weights = any(p.vectors for p in parts)
        lines, sizes, totals, constants = [], [], [], []
        first = self._first(parts[0])
        for part, shape in zip(parts, shapes):
            at, like = self._at(part), self._first(part)
            blocks = -(-part.width // shape.block) if shape.form == "pointwise" else 1
            lines.append(f"rows{at} = {like}.numel() // {part.width}")
            tiles = f"cdiv(rows{at}, {shape.rows})" + (f" * {blocks}" if blocks > 1 else "")
            count = f"programs{at}" if weights else f"tiles{at}"
            lines.append(f"{count} = programs_for({tiles}, {like})" if weights else f"{count} = {tiles}")
            sizes += [f"rows{at}", *([f"{like}.shape[2]"] if part.per_head else []), *([count] if len(parts) > 1 or weights else [])]
            totals.append(count)
            suffix = f"_{part.name.upper()}" if part.name else ""
            constants += [f"ROWS{suffix}={shape.rows}", f"BLOCK{suffix}={shape.block}"]
        for part in parts:
            for o in part.vectors:
                make = "zeros" if any(s.form == "loop" for s in shapes) else "empty"
                lines.append(f"{part.bind[o.name]} = torch.{make}((programs{self._at(part)} if weight_gradients else 0, {o.width}), "
                             f"dtype=torch.float32, device={first}.device)")
        tensors = []
        for tensor, (_, i) in self._inputs(parts).items():
            tensors += [tensor, f"*{tensor}.stride()"]
        tensors += [p.bind[o.name] for p in parts for o in (*p.outputs, *p.vectors)]
        if weights:
            constants.append("WEIGHT_GRADIENT=weight_gradients")
        call = f"{kernel}[({' + '.join(totals)},)]({', '.join([*tensors, *sizes, f'{first}.shape[1]', *constants, f'num_warps={max(s.warps for s in shapes)}'])})"
        lines.append(f"if {' + '.join(totals)}:")
        lines.append(f"    {call}")
        for part in parts:
            for o in part.vectors:
                lines.append(f"{part.bind[o.name]} = {part.bind[o.name]}.sum(0)")
        return lines

    def _backward_op(self, shapes: list[Shape]) -> str:
        inputs = self._inputs(self.back)
        weights = any(p.vectors for p in self.back)
        arguments = ", ".join([*(f"{t}: Tensor" for t in inputs), *(["weight_gradients: bool"] if weights else [])])
        outputs = [(p, o) for p in self.back for o in p.outputs]
        vectors = [(p, o) for p in self.back for o in p.vectors]
        count = len(outputs) + len(vectors)
        results = "Tensor" if count == 1 else f"tuple[{', '.join(['Tensor'] * count)}]"
        lines = [f'@torch.library.custom_op("{self.namespace}::{self.name}_backward", mutates_args=())',
                 f"def _{self.name}_backward({arguments}) -> {results}:"]
        body, likes = self._prepared(self.back)
        lines += body
        lines.append(f"    if not on_gpu({next(iter(likes.values()))}):")
        lines += self._reference_calls(self.back, "_backward", 8)
        lines.append("    else:")
        lines += ["        " + line for line in [
            *(f"{p.bind[o.name]} = torch.empty({self._shape_of(p, o.width)}, dtype={self._gradient_dtype(p, o)}, device={likes[p.name]}.device)" for p, o in outputs),
            *self._launch(self.back, shapes, f"_{self.name}_backward_kernel")]]
        returned = [self._reshaped(p, p.bind[o.name]) for p, o in outputs] + [
            f"{p.bind[o.name]}.to({w}.dtype)" if (w := p.bind[o.name.removeprefix("grad_")]) in inputs else p.bind[o.name] for p, o in vectors]
        lines.append(f"    return {', '.join(returned)}")
        fake = [f"@_{self.name}_backward.register_fake", f"def _({arguments}):", "    return " + ", ".join(
            [f"{self._first(p)}.new_empty({self._first(p)}.shape, dtype={self._gradient_dtype(p, o)})" for p, o in outputs]
            + [f"torch.empty_like({w})" if (w := p.bind[o.name.removeprefix("grad_")]) in inputs
               else f"{self._first(p)}.new_empty({o.width}, dtype=torch.float32)" for p, o in vectors])]
        return wrap("\n".join([*lines, "", "", *fake])) + "\n"

    def _autograd(self) -> str:
        signature = self._signature()
        names = [t.name for t in signature.inputs]
        saved = [t for t in self._inputs(self.back) if not t.startswith("grad_")]
        outputs = [f"grad_{t.name}" for t in signature.outputs]
        weights = any(p.vectors for p in self.back)
        used = list(self._inputs(self.back))
        produced = [p.bind[o.name] for p in self.back for o in p.outputs] + [p.bind[o.name] for p in self.back for o in p.vectors]
        lines = [f"def _{self.name}_setup(ctx, inputs, output):", f"    {', '.join(names)}{',' if len(names) == 1 else ''} = inputs",
                 f"    ctx.save_for_backward({', '.join(saved)})", "", "",
                 f"def _{self.name}_gradient(ctx, {', '.join(outputs)}):",
                 *([f"    {', '.join(saved)}{',' if len(saved) == 1 else ''} = ctx.saved_tensors"] if saved else [])]
        call = [*used]
        if weights:
            places = [names.index(p.bind[i.name]) for p in self.parts for i in p.inputs if i.role == "vector"]
            lines.append("    weight_gradients = " + " or ".join(f"ctx.needs_input_grad[{i}]" for i in places))
            call.append("weight_gradients")
        lines.append(f"    {', '.join(produced)} = _{self.name}_backward({', '.join(call)})")
        returned = []
        for t in signature.inputs:
            returned.append(self._returned(t))
        if weights:
            vectors = {p.bind[i.name] for p in self.parts for i in p.inputs if i.role == "vector"}
            returned = [f"{r} if weight_gradients else None" if t.name in vectors else r for r, t in zip(returned, signature.inputs)]
        lines.append(f"    return {', '.join(returned)}")
        lines += ["", "", f"_{self.name}.register_autograd(_{self.name}_gradient, setup_context=_{self.name}_setup)"]
        return wrap("\n".join(lines)) + "\n"

    def _returned(self, t: Tensor) -> str:
        for part, back in zip(self.parts, self.back):
            if t.name == "carry" and back.carry_gradient:
                return back.bind[back.carry_gradient]
            for i in part.inputs:
                if part.bind[i.name] == t.name and i.name in back.gradient_of:
                    made = back.gradient_of[i.name]
                    if i.role == "row" and made != f"grad_{i.name}":
                        return f"{back.bind[made]}.to({t.name}.dtype)" if t.name in self._inputs(self.back) else back.bind[made]
                    return back.bind[made]
        return "None"

    def _face(self, signature: Signature) -> str:
        arguments = ", ".join(f"{t.name}: Tensor" for t in signature.inputs)
        described = "\n".join(f"    {t.name}: {_described(t)}" for t in signature.inputs)
        made = "\n".join(f"    {t.name}: {_described(t)}" for t in signature.outputs)
        text = [f"def {self.name}({arguments}) -> {self._results(signature)}:",
                f'    """{TITLES[self.region.kind]}, rounded where the engine rounds.', "", described, "", "    Returns", made, '    """',
                f"    return _{self.name}({', '.join(t.name for t in signature.inputs)})"]
        return wrap("\n".join(text)) + "\n"


def _described(t: Tensor) -> str:
    no = "" if t.differentiable else "; no gradient"
    return {
        "rows": f"[..., {t.width}], any strides{no}",
        "heads": f"[..., steps, heads, {t.width}], any strides{no}",
        "table": f"[batch or 1, steps, {t.width}], one row per token{no}",
        "vector": f"[{t.width}]",
        "carry": "stands for the unrounded inner sum in autograd's graph; holds no numbers",
    }[t.shape]


def _folded(module: str) -> str:
    import re

    return re.sub(r"\.\d+(?=\.|$)", ".*", module, count=1)


def package_digest(files: Mapping[str, str]) -> str:
    """sha256 over paths and texts."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path}\0{files[path]}\0".encode())
    return digest.hexdigest()
