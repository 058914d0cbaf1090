"""Regions of the engine's program, each lifted to its row-wise form.

A region ends at rounded values that leave the kernel which computes them (read by a matmul, by attention, by another
kernel, or a result) and begins at what is rounded or given already: rounded anchors, the residual, tables, weights.
Between them stands arithmetic only. Lifting (lift.py) follows element ids: all rows (tokens and heads) of an output at
once, so a region is accepted only if every row computes the same function of its own inputs. What does not fit is
refused with a reason, never guessed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from graphdiff.emit.carried import link_carried
from graphdiff.emit.ir import Part, Refused, RegionIR
from graphdiff.emit.lift import Lifter, Misfit
from graphdiff.emit.names import give_names, name_by_structure
from graphdiff.errors import GraphdiffError
from graphdiff.program import Program

MOST_ROWS_TRIED = 256


def extract_regions(program: Program, tokens: int) -> tuple[list[RegionIR], list[Refused]]:
    """Every region of the program in its order, and the rounded values that no kernel is made for.

    tokens: how many the probe ran on. Raises GraphdiffError if the program was made for another number.
    """
    embedded = {n.shape[0] for n in program.nodes if n.op == "embedding" and n.shape}
    if embedded and embedded != {tokens}:
        raise GraphdiffError(f"the program embeds {', '.join(map(str, sorted(embedded)))} tokens, not {tokens}", fix="give the probe's number of tokens")
    return _Extractor(program, tokens).run()


class _Extractor:
    def __init__(self, program: Program, tokens: int) -> None:
        self.program, self.tokens = program, tokens
        self.readers: dict[int, set[int]] = defaultdict(set)
        live: set[int] = set()
        stack = [n for o in program.outputs for n in o.operand.nodes]
        for i, o in enumerate(program.outputs):
            for n in o.operand.nodes:
                self.readers[n].add(-1 - i)
        while stack:
            n = stack.pop()
            if n in live:
                continue
            live.add(n)
            for o in program.nodes[n].operands:
                for m in o.nodes:
                    self.readers[m].add(n)
                    stack.append(m)
        self.live = live

    def place(self, n: int) -> tuple[str, str]:
        site = self.program.site(n)
        return site.code, site.kernel

    def run(self) -> tuple[list[RegionIR], list[Refused]]:
        parts: list[tuple[Part, list[int], frozenset[int]]] = []
        refused: list[Refused] = []
        for outputs, inside in self._groups():
            try:
                parts.append((self._lift(outputs), outputs, inside))
            except Misfit as why:
                site = self.program.site(outputs[0])
                refused.append(Refused(outputs[0], site.module, site.kernel, str(why)))
        regions = [self._region(group) for group in self._launches(parts)]
        link_carried(regions)
        for region in regions:
            if region.name == "residual_rms_norm":
                region.name = name_by_structure(region.kind, region.parts)
        return regions, refused

    # ---- which rounds leave together
    def _is_boundary(self, n: int, kernel: tuple[str, str]) -> bool:
        """True where a region that `kernel` stores begins: given or rounded values, anchors."""
        node = self.program.nodes[n]
        if node.kind in ("leaf", "anchor", "opaque"):
            return True
        # A rounding inside the same kernel is a rounding the kernel performs between two of its own ops.
        return node.op == "round" and self.place(n) != kernel

    def _inside(self, output: int) -> set[int]:
        kernel = self.place(output)
        found, stack = {output}, [m for o in self.program.nodes[output].operands for m in o.nodes]
        while stack:
            n = stack.pop()
            if n in found or self._is_boundary(n, kernel):
                continue
            found.add(n)
            stack.extend(m for o in self.program.nodes[n].operands for m in o.nodes)
        return found

    def _groups(self) -> Iterable[tuple[list[int], frozenset[int]]]:
        groups: list[tuple[list[int], set[int], tuple[str, str]]] = []
        for n, node in enumerate(self.program.nodes):
            if node.op != "round" or n not in self.live or not node.dynamic:
                continue
            kernel = self.place(n)
            if all(r >= 0 and self.place(r) == kernel for r in self.readers[n]):
                continue
            inside = self._inside(n)
            if not any(self.program.nodes[m].kind == "arith" for m in inside) or self._is_epilogue(inside):
                continue
            arithmetic = {m for m in inside if self.program.nodes[m].dynamic and self.program.nodes[m].kind in ("arith", "exact")}
            for outputs, known, where in groups:
                if where == kernel and known & arithmetic:
                    outputs.append(n)
                    known |= inside
                    break
            else:
                groups.append(([n], inside, kernel))
        for outputs, inside, _ in groups:
            yield outputs, frozenset(inside)

    def _is_epilogue(self, inside: set[int]) -> bool:
        """A bias or scale applied to a matmul's unrounded result: part of the anchor, not a region."""
        return any(self.program.nodes[m].op in ("mm", "attention", "opaque") for n in inside
                   for o in self.program.nodes[n].operands for m in o.nodes)

    # ---- which parts leave in one launch
    def _launches(self, parts: list) -> list[list]:
        by_reader: dict[int, list] = {}
        launches: list[list] = []
        for entry in parts:
            readers = [r for n in entry[1] for r in self.readers[n] if r >= 0 and self.program.nodes[r].op == "attention"]
            key = readers[0] if readers else None
            if key is not None and key in by_reader:
                by_reader[key].append(entry)
                continue
            launches.append([entry])
            if key is not None:
                by_reader[key] = launches[-1]
        for reader, launch in by_reader.items():
            order = [n for o in self.program.nodes[reader].operands for n in o.nodes]
            launch.sort(key=lambda e: min(order.index(n) for n in e[1] if n in order))
        return launches

    def _region(self, launch: list) -> RegionIR:
        parts = [p for p, _, _ in launch]
        kind = _kind(parts)
        nodes = frozenset(n for _, _, inside in launch for n in inside)
        outputs = [n for _, outputs, _ in launch for n in outputs]
        kernels = tuple(dict.fromkeys(self.place(n) for n in outputs))
        modules = tuple(dict.fromkeys(self.program.site(n).module for n in outputs))
        name = give_names(self.program, kind, parts, modules[0] if modules else "")
        return RegionIR(kind, parts, name, kernels, modules, nodes)

    # ---- one part
    def _lift(self, outputs: list[int]) -> Part:
        kernel = self.place(outputs[0])
        reasons = []
        for width in self._widths(outputs):
            for head_major in (False, True):
                try:
                    return Lifter(self.program, self.tokens, width, kernel, self._is_boundary).part(outputs, head_major)
                except Misfit as why:
                    reasons.append(f"rows of {width}: {why}")
        raise Misfit(reasons[0] if reasons else "no row width divides it")

    def _widths(self, outputs: list[int]) -> list[int]:
        """Row widths to try: the length that is reduced; else all of a token, then heads from narrow to wide."""
        sizes = {self.program.nodes[n].size for n in outputs}
        if len(sizes) != 1:
            raise Misfit("its outputs have different sizes")
        size = sizes.pop()
        if size % self.tokens:
            raise Misfit("its size is no multiple of the number of tokens")
        size //= self.tokens
        lengths = set()
        for output in outputs:
            for n in self._inside(output):
                node = self.program.nodes[n]
                if node.op in ("sum", "amax", "amin") and node.dynamic:
                    (operand,) = node.operands
                    lengths.add(int(np.prod([operand.shape[a] for a in node.attrs["axes"]])))
        if len(lengths) > 1:
            raise Misfit(f"it reduces over rows of different lengths {sorted(lengths)}")
        if lengths:
            return [w for w in lengths if size % w == 0] or [size]
        return [size, *[w for w in range(2, size) if size % w == 0 and size // w <= MOST_ROWS_TRIED]]


def _kind(parts: list[Part]) -> str:
    part = parts[0]
    if any(i.role == "table" for i in part.inputs):
        return "qk_norm_rope" if part.reduces else "rope"
    rows = sum(i.role == "row" for i in part.inputs)
    if part.reduces and any(part.values[v].op == "sub" and part.values[v].lanes > 1 for v in part.needed()):
        return "layer_norm"
    if part.reduces:
        return "residual_rms_norm" if rows > 1 else "rms_norm"
    return "gated_activation" if rows == 2 else "pointwise"
