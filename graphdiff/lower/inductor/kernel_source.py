"""A Triton kernel as text: its decorator's data, parameters and body, parsed but not yet evaluated."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from graphdiff.errors import GraphdiffError

KINDS = frozenset({"pointwise", "reduction", "persistent_reduction", "cooperative_reduction", "template"})
GRIDS = frozenset({"Grid1D", "Grid2D", "Grid3D", "Grid2DWithYZOverflow", "SequentialComboKernelGrid", "RoundRobinComboKernelGrid",
                   "SequentialFlattenComboKernelGrid", "MixOrderReductionGrid", "CooperativeReductionGrid", "FixedGrid"})
CHOSEN = frozenset({"RSPLIT", "RSPLIT_SIZE", "NUM_STAGES"})
"""What a launch chooses beside block sizes: how rows are split over programs, and how loads are pipelined."""


@dataclass(frozen=True)
class KernelSource:
    """`shift` turns a line of the kernel's source into a line of the output code.

    combo: of a combo kernel combo_grid_meta, with the sizes of each sub-kernel ({'xnumel_0': None or int, ...}).
    grid: Inductor's class of the grid. launcher_arguments: how many arguments of a launch, the last, are the grid itself.
    """

    name: str
    kind: str
    signature: dict[str, str]
    parameters: tuple[str, ...]
    body: list[ast.stmt]
    helpers: dict[str, ast.FunctionDef]
    combo: dict[str, Any] | None
    grid: str
    launcher_arguments: int
    shift: int
    origin: tuple[str, ...]

    @property
    def blocks(self) -> list[str]:
        """Names of what the launch would choose. (An xnumel of 1 is called constexpr too, yet is passed.)"""
        return [n for n in self.parameters if "BLOCK" in n or n in CHOSEN]


def parse_kernel(name: str, source: str, shift: int = 0, origin: tuple[str, ...] = ()) -> KernelSource:
    """Raises GraphdiffError for a kernel kind without lowering (split scans, user kernels), and for text that is cut or
    changed."""
    try:
        return _parsed(name, source, shift, origin)
    except SyntaxError as error:
        raise GraphdiffError(f"the kernel's text is no Python: {error.msg}", where=f"kernel {name} line {shift + (error.lineno or 1)}",
                             fix="give Inductor's output code whole, as it was written") from None


def _parsed(name: str, source: str, shift: int, origin: tuple[str, ...]) -> KernelSource:
    functions = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    main = next((f for f in functions if f.name == name), functions[-1] if functions else None)
    where = f"kernel {name} line {shift + (main.lineno if main else 1)}"
    decorators = [d for d in main.decorator_list if isinstance(d, ast.Call)] if main else []
    if not decorators:
        raise GraphdiffError("no lowering for a Triton kernel without Inductor's decorator", where=where)
    kind = ast.unparse(decorators[0].func).split(".")[-1]
    if kind not in KINDS:
        raise GraphdiffError(f"no lowering for {_construct(kind, main)}", where=where,
                             fix="turn off the Inductor setting that makes it, or report it")
    keywords = {k.arg: k.value for k in decorators[0].keywords}
    meta, inductor = _entries(keywords["triton_meta"]), _entries(keywords.get("inductor_meta"))
    combo = ast.literal_eval(inductor["combo_grid_meta"]) if "combo_grid_meta" in inductor else None
    grid = ast.literal_eval(inductor["grid_type"]) if "grid_type" in inductor else "Grid1D"
    if grid not in GRIDS:
        raise GraphdiffError(f"no lowering for the grid {grid}", where=where)
    extra = ast.literal_eval(inductor["extra_launcher_args"]) if "extra_launcher_args" in inductor else ()
    return KernelSource(
        name, kind, ast.literal_eval(meta["signature"]), tuple(a.arg for a in main.args.args), main.body,
        {f.name: f for f in functions if f is not main}, combo, grid, len(extra), shift, origin)


def _construct(kind: str, function: ast.FunctionDef) -> str:
    """Names what stands in the way: tl.dot rather than `template` where it is one."""
    calls = {ast.unparse(n.func) for n in ast.walk(function) if isinstance(n, ast.Call)}
    return f"tl.dot (a {kind} kernel)" if "tl.dot" in calls else f"a {kind} kernel"


def _entries(node: ast.expr | None) -> dict[str, ast.expr]:
    """A dict display's values by key, unevaluated: some hold calls."""
    if not isinstance(node, ast.Dict):
        return {}
    return {k.value: v for k, v in zip(node.keys, node.values) if isinstance(k, ast.Constant)}
