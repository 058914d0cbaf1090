"""A checked kernel: its tree, the data of its decorator, its places that round, and new text without some of them."""

from __future__ import annotations

import ast
import copy
import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from graphdiff.hardware.compile import Job
from graphdiff.hardware.grammar import Refused, check
from graphdiff.lower.inductor.output_code import OutputCode
from graphdiff.lower.inductor.triton_kernel import BLOCK
from graphdiff.lower.inductor.values import FLOATS, TL_FLOATS

LOW_POINTERS = {f"*{k}": v for k, v in FLOATS.items() if v != "float32"}
LOW_TYPES = {k: v for k, v in TL_FLOATS.items() if v != "float32"}
TYPE = re.compile(r"\*?(?:i|u|fp|bf)\d+(?:e\db?\d\w*)?|constexpr")
LONGEST_SOURCE = 1 << 20
TILE, WIDEST_BLOCK = 1024, 2048
SPLIT = {"RSPLIT": 4, "RSPLIT_SIZE": 64, "NUM_STAGES": 1}
"""How a launch might split rows over programs."""


@dataclass(frozen=True)
class Place:
    """A conversion (`pointer` empty, `index` counts conversions in the order of the tree) or all stores through a pointer."""

    dtype: str
    lines: tuple[int, ...]
    name: str
    values: tuple[str, ...]
    pointer: str = ""
    index: int = -1


@dataclass(frozen=True)
class Kernel:
    """shift: what turns a line of the kernel's own text into one of the output code."""

    name: str
    functions: tuple[ast.FunctionDef, ...]
    signature: dict[str, str]
    constants: dict[str, int | float | bool | None]
    aligned: tuple[int, ...]
    fp_fusion: bool
    shift: int

    @property
    def main(self) -> ast.FunctionDef:
        return next(f for f in self.functions if f.name == self.name)

    @property
    def parameters(self) -> list[str]:
        return [a.arg for a in self.main.args.args]

    @property
    def text(self) -> str:
        return "\n\n".join(f"@triton.jit\n{ast.unparse(f)}" for f in self.functions)


def read_kernel(code: OutputCode, name: str) -> Kernel:
    """Raises Refused for a kernel that is not made of what the grammar lists."""
    try:
        return _read(code, name)
    except (RecursionError, MemoryError):
        raise Refused("a kernel nested too deep") from None
    except (SyntaxError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(f"its text cannot be read: {type(error).__name__}: {str(error)[:100]}") from None


def _read(code: OutputCode, name: str) -> Kernel:
    constant, _ = code.sources[name]
    if not isinstance(constant.value, str) or len(constant.value) > LONGEST_SOURCE:
        raise Refused("no text, or too much of it")
    functions = [n for n in ast.parse(constant.value).body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    main = next((f for f in functions if f.name == name), None)
    if main is None:
        raise Refused(f"no function {name[:60]}")
    data = _decorator(main)
    functions = [f for f in functions if isinstance(f, ast.FunctionDef) or f is main]
    check(functions)
    made = tuple(copy.deepcopy(f) for f in functions)
    for f in made:
        f.decorator_list = []
    signature = {k: v for k, v in data.get("signature", {}).items()}
    parameters = [a.arg for a in main.args.args]
    if set(signature) != set(parameters) or not all(isinstance(t, str) and TYPE.fullmatch(t) for t in signature.values()):
        raise Refused("a signature that is not of its parameters")
    constants = {k: v for k, v in data.get("constants", {}).items() if k in parameters}
    if not all(v is None or isinstance(v, (bool, int, float)) for v in constants.values()):
        raise Refused("constants that are no numbers")
    kernel = Kernel(name, made, signature, constants, _aligned(data.get("configs"), len(parameters)), data.get("enable_fp_fusion", True) is not False,
                    constant.lineno - 1)
    if not kernel.text:
        raise Refused("no text")
    return kernel


def _decorator(main: ast.AST) -> dict[str, Any]:
    """The literal entries of `triton_meta`: data, read without running anything."""
    calls = [d for d in getattr(main, "decorator_list", []) if isinstance(d, ast.Call)]
    meta = next((k.value for c in calls for k in c.keywords if k.arg == "triton_meta"), None)
    if not isinstance(meta, ast.Dict):
        raise Refused("no triton_meta in its decorator")
    found = {}
    for key, value in zip(meta.keys, meta.values):
        if isinstance(key, ast.Constant) and key.value in ("signature", "constants", "configs", "enable_fp_fusion"):
            found[key.value] = ast.literal_eval(value)
    return found


def _aligned(configs: Any, count: int) -> tuple[int, ...]:
    """Arguments that are multiples of 16."""
    if not isinstance(configs, list) or not configs or not isinstance(configs[0], dict):
        return ()
    return tuple(k[0] for k, v in configs[0].items()
                 if isinstance(k, tuple) and len(k) == 1 and isinstance(k[0], int) and 0 <= k[0] < count and v == [["tt.divisibility", 16]])


# ---- places that round
def places(kernel: Kernel) -> list[Place]:
    """Every conversion to a low format, and every pointer to one that is stored through."""
    found, stores = [], {}
    values = _values(kernel.main)
    for index, node in enumerate(_conversions(kernel.functions)):
        name, dtype, operand = _conversion(node)
        found.append(Place(dtype, (node.lineno + kernel.shift,), _assigned(kernel, node), (_value(operand, values, dtype),), index=index))
    for node in ast.walk(kernel.main):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.store" and len(node.args) > 1:
            pointer = _root(node.args[0], kernel)
            if kernel.signature.get(pointer, "") in LOW_POINTERS:
                stores.setdefault(pointer, []).append(node)
    for pointer, nodes in stores.items():
        dtype = LOW_POINTERS[kernel.signature[pointer]]
        found.append(Place(dtype, tuple(n.lineno + kernel.shift for n in nodes), pointer, tuple(_value(n.args[1], values, dtype) for n in nodes), pointer))
    return found


def groups(found: list[Place]) -> list[list[Place]]:
    """Places that round the same value belong together: the compiler does it once."""
    made: list[list[Place]] = []
    for place in found:
        same = [g for g in made if any(set(place.values) & set(p.values) and p.dtype == place.dtype for p in g)]
        made = [g for g in made if not any(g is s for s in same)] + [[p for g in same for p in g] + [place]]
    return made


def _conversions(functions: Collection[ast.FunctionDef]) -> Iterator[ast.Call]:
    for f in functions:
        for node in ast.walk(f):
            if isinstance(node, ast.Call) and _conversion(node) is not None:
                yield node


def _conversion(node: ast.Call) -> tuple[ast.Attribute, str, ast.expr] | None:
    """(the type written, its format, what is converted) of `x.to(tl.bfloat16)` and `tl.cast(x, tl.bfloat16)`."""
    if not isinstance(node.func, ast.Attribute) or any(k.arg == "bitcast" for k in node.keywords):
        return None
    if node.func.attr == "to" and len(node.args) == 1:
        operand, dtype = node.func.value, node.args[0]
    elif ast.unparse(node.func) == "tl.cast" and len(node.args) == 2:
        operand, dtype = node.args
    else:
        return None
    if isinstance(dtype, ast.Attribute) and ast.unparse(dtype.value) == "tl" and dtype.attr in LOW_TYPES:
        return dtype, LOW_TYPES[dtype.attr], operand
    return None


def _root(pointer: ast.expr, kernel: Kernel) -> str:
    return next((n.id for n in ast.walk(pointer) if isinstance(n, ast.Name) and kernel.signature.get(n.id, "").startswith("*")), "")


def _assigned(kernel: Kernel, node: ast.AST) -> str:
    """The name on the left of the statement that holds a node."""
    for f in kernel.functions:
        for s in ast.walk(f):
            if isinstance(s, ast.Assign) and any(n is node for n in ast.walk(s)):
                return ast.unparse(s.targets[0])
    return ""


def _values(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """What each variable stands for, of those assigned once."""
    found: dict[str, list[ast.expr | None]] = {}
    for s in ast.walk(function):
        if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name):
            found.setdefault(s.targets[0].id, []).append(s.value)
        elif isinstance(s, ast.Name) and isinstance(s.ctx, ast.Store):
            found.setdefault(s.id, [])
    return {k: v[0] for k, v in found.items() if len(v) == 1}


def _value(e: ast.expr, values: dict[str, ast.expr], dtype: str) -> str:
    """The value that is rounded, without conversions that change no bit of the result. The same text is the same value."""
    for _ in range(1000):
        if isinstance(e, ast.Name) and e.id in values:
            inner = values[e.id]
            if not (isinstance(inner, ast.Name) or _widening(inner, dtype)):
                return e.id
            e = inner
        elif (inner := _widening(e, dtype)) is not None:
            e = inner
        else:
            break
    return ast.unparse(e)


def _widening(e: ast.expr, dtype: str) -> ast.expr | None:
    """x of `x.to(tl.float32)`, and of a conversion to the format itself."""
    if isinstance(e, ast.Call) and isinstance(e.func, ast.Attribute) and e.func.attr == "to" and len(e.args) == 1 and not e.keywords:
        to = ast.unparse(e.args[0]).removeprefix("tl.")
        if to == "float32" or LOW_TYPES.get(to) == dtype:
            return e.func.value
    return None


# ---- text to compile
def job(kernel: Kernel, kept: Collection[Place] | None = None, *, whole: bool = False, sass: bool = False, fp_fusion: bool | None = None) -> Job:
    """The kernel, with only the places in `kept` rounding (None: all of them). `whole`: reductions in one block."""
    removed = [] if kept is None else [p for p in places(kernel) if p not in kept]
    functions = copy.deepcopy(kernel.functions)
    conversions = list(_conversions(functions))
    signature = dict(kernel.signature)
    aligned = set(kernel.aligned)
    for place in removed:
        if not place.pointer:
            _conversion(conversions[place.index])[0].attr = "float32"
        elif place.pointer in loaded(kernel):
            _store_elsewhere(next(f for f in functions if f.name == kernel.name), place.pointer, signature, aligned)
        else:
            signature[place.pointer] = "*fp32"
    for f in functions:
        for parameter in f.args.args:
            parameter.annotation = ast.parse("tl.constexpr", mode="eval").body if signature.get(parameter.arg) == "constexpr" and f.name == kernel.name else None
    blocks, warps = _blocks(kernel, whole)
    constants = {**kernel.constants, **blocks, **{n: SPLIT[n] for n in kernel.parameters if n in SPLIT}}
    for name in constants:
        signature[name] = "constexpr"
    if missing := [n for n, t in signature.items() if t == "constexpr" and n not in constants]:
        raise Refused(f"no value for {', '.join(missing)[:80]}")
    text = "\n\n".join(f"@triton.jit\n{ast.unparse(f)}" for f in functions)
    parameters = [a.arg for f in functions if f.name == kernel.name for a in f.args.args]
    return Job(source=text, name=kernel.name, signature=signature, constants=constants,
               aligned=[i for i in sorted(aligned) if parameters[i] not in constants], warps=warps,
               fp_fusion=kernel.fp_fusion if fp_fusion is None else fp_fusion, sass=sass)


def loaded(kernel: Kernel) -> set[str]:
    """The pointers that are loaded through."""
    loads = (n for n in ast.walk(kernel.main) if isinstance(n, ast.Call) and ast.unparse(n.func) == "tl.load" and n.args)
    return {_root(n.args[0], kernel) for n in loads}


def _store_elsewhere(main: ast.FunctionDef, pointer: str, signature: dict[str, str], aligned: set[int]) -> None:
    """A pointer that is loaded through as well keeps its format; stores go to one of their own in FP32. Were the loads FP32
    too, casts of what they load would begin to round."""
    own = f"{pointer}_stored"
    for node in ast.walk(main):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.store":
            for name in (n for n in ast.walk(node.args[0]) if isinstance(n, ast.Name) and n.id == pointer):
                name.id = own
    if [a.arg for a in main.args.args].index(pointer) in aligned:
        aligned.add(len(main.args.args))
    main.args.args.append(ast.arg(own))
    signature[own] = "*fp32"


def _blocks(kernel: Kernel, whole: bool) -> tuple[dict[str, int], int]:
    """Block sizes, and warps so that a thread has a few elements."""
    reduced = [n for n in kernel.parameters if BLOCK.match(n) and n.startswith("R")]
    tiled = [n for n in kernel.parameters if BLOCK.match(n) and not n.startswith("R")]
    fixed = _constant_blocks(kernel)
    width = max([_power(_numel(kernel, n), whole) for n in reduced] + [v for k, v in fixed.items() if k.startswith("R")] + [1])
    blocks = {n: _power(_numel(kernel, n), whole) for n in reduced}
    dimensions = max(1, len({n[0] for n in tiled}))
    per = max(1, TILE // width)
    each = 2 ** int(math.log2(per) / dimensions)
    blocks |= {n: each for n in tiled}
    total = width * each**dimensions
    return blocks, max(1, min(16, total // 256))


def _constant_blocks(kernel: Kernel) -> dict[str, int]:
    """Block sizes that the body sets; one that it computes from how rows are split is the whole reduced size at most."""
    sizes = {}
    for s in ast.walk(kernel.main):
        if isinstance(s, ast.AnnAssign) and isinstance(s.value, ast.Constant) and isinstance(s.value.value, int):
            sizes[s.target.id] = s.value.value
        elif isinstance(s, ast.AnnAssign) and isinstance(s.value, ast.Call) and BLOCK.match(s.target.id):
            sizes[s.target.id] = _power(_numel(kernel, s.target.id), True)
    return sizes


def _numel(kernel: Kernel, block: str) -> int:
    """The reduced size, where the kernel states it."""
    wanted = BLOCK.match(block)["dim"].lower() + "numel"
    for s in ast.walk(kernel.main):
        if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == wanted and isinstance(s.value, ast.Constant) and isinstance(s.value.value, int):
            return s.value.value
    return WIDEST_BLOCK


def _power(n: int, whole: bool) -> int:
    return 1 << min(max(0, n - 1).bit_length(), 15 if whole else WIDEST_BLOCK.bit_length() - 1)
