"""A launch of a Triton kernel, evaluated abstractly as one program over the whole grid.

Every block size is the size it tiles, so masks of the grid are true and a looped reduction runs its body once per
loop. Rows that programs split among themselves are one split: the other programs' partial sums are zero. A combo kernel
runs once per sub-kernel, at the program id where that sub-kernel starts; templates: see template.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from graphdiff.lower.inductor import template
from graphdiff.lower.inductor.arithmetic import binary
from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.kernel_source import KernelSource
from graphdiff.lower.inductor.triton_expr import Expressions, Programs
from graphdiff.lower.inductor.values import FLOATS, INTS, Ints, Pointer, Tensor, as_ints, broadcast

BLOCK = re.compile(r"^(?P<dim>[XYZ]|R\d*_?)BLOCK(?:_(?P<sub>\d+))?$")
ALL_REDUCED = "RBLOCK"
REDUCED = re.compile(r"^(R\d+_)NUMEL$")
ONE_SPLIT = {"RSPLIT": 1, "NUM_STAGES": 1}


def launch(ctx: Context, kernel: KernelSource, arguments: list[Any]) -> None:
    """Run the kernel on arguments in call order (block sizes are not passed)."""
    line = ctx.line
    ctx.enter(kernel.name, kernel.origin, kernel.shift + (kernel.body[0].lineno if kernel.body else 1))
    if kernel.kind == "template":
        arguments, batch = template.split_arguments(ctx, kernel, arguments)
        environment, programs = bind(ctx, kernel, arguments), Programs((0, batch, 0), (1, 1, 1))
        fixed = template.blocks(ctx, kernel, Expressions(ctx, kernel, environment, programs))
        Statements(ctx, kernel, environment, programs, fixed).run(kernel.body)
    else:
        environment = bind(ctx, kernel, arguments)
        rows = _cleared_partial_sums(ctx, kernel, environment) if kernel.grid == "MixOrderReductionGrid" else 1
        for program_id, blocks in grid(ctx, kernel, environment):
            Statements(ctx, kernel, {**environment, **blocks}, Programs((program_id, 0, 0), (rows, 1, 1))).run(kernel.body)
    ctx.enter("", (), line)


def bind(ctx: Context, kernel: KernelSource, arguments: list[Any]) -> dict[str, Any]:
    names = [n for n in kernel.parameters if n not in kernel.blocks]
    if len(names) != len(arguments):
        raise ctx.broken(f"{len(arguments)} arguments for the {len(names)} parameters {', '.join(names)}")
    return {n: parameter(ctx, n, kernel.signature.get(n, ""), a) for n, a in zip(names, arguments)}


def parameter(ctx: Context, name: str, kind: str, argument: Any) -> Any:
    if not isinstance(argument, Tensor):
        return argument
    dtype = FLOATS.get(kind[1:]) or INTS.get(kind[1:])
    if dtype is None or not kind.startswith("*"):
        raise ctx.unsupported(f"parameter {name} of type {kind!r}")
    if dtype != argument.dtype and {dtype, argument.dtype} != {"bool", "int8"}:
        raise ctx.broken(f"parameter {name} is {dtype}, its argument {argument.dtype}")
    return Pointer(argument.storage, as_ints(argument.offset), argument.dtype)


def _cleared_partial_sums(ctx: Context, kernel: KernelSource, environment: dict[str, Any]) -> int:
    """How many programs there are: the workspace holds, per sum, a row of partial sums for each. All rows are cleared:
    the one program that is evaluated adds up what all would."""
    storage = environment["ws_ptr"].storage
    row = environment["r0_numel"] * partial_sums(kernel)
    if not row or storage.size % row:
        raise ctx.broken(f"a workspace of {storage.size} elements for partial sums of {row}")
    index = np.arange(storage.size)
    storage.store(index, broadcast(ctx.builder.const(0.0), index.shape))
    return storage.size // row


def partial_sums(kernel: KernelSource) -> int:
    """How many sums over all rows a mix-order reduction leaves to be finished: its stores to the workspace."""
    return sum(isinstance(n, ast.Call) and ast.unparse(n.func) == "tl.store" and "ws_ptr" in ast.unparse(n.args[0])
               for s in kernel.body for n in ast.walk(s))


def grid(ctx: Context, kernel: KernelSource, environment: dict[str, Any]) -> Iterator[tuple[int, dict[str, int]]]:
    """(program id, block sizes) of each evaluation of the body."""
    if kernel.combo is None:
        yield 0, {b: size_of_block(ctx, b, environment) for b in kernel.blocks}
        return
    for sub in range(kernel.combo["num_kernels"]):
        if kernel.combo.get(f"no_x_dim_{sub}"):
            raise ctx.unsupported("a sub-kernel with one program per row (no_x_dim)")
        sizes = {**{k: v for k, v in kernel.combo.items() if "numel" in k and v is not None}, **environment}
        stated = [b for b in kernel.blocks if not (b.startswith("R") and b.split("BLOCK")[0].lower() + "numel" not in sizes)]
        blocks = {b: size_of_block(ctx, b, sizes, sub) for b in stated}
        start = sub if kernel.grid == "RoundRobinComboKernelGrid" else sum(program_count(sizes, blocks, j) for j in range(sub))
        yield start, blocks


def size_of_block(ctx: Context, block: str, sizes: dict[str, Any], sub: int | None = None) -> int:
    """The size that a block covers: XBLOCK -> xnumel, R0_BLOCK -> r0_numel, XBLOCK_1 -> xnumel_1, RSPLIT_SIZE -> xnumel."""
    if block in ONE_SPLIT:
        return ONE_SPLIT[block]
    match = BLOCK.match("XBLOCK" if block == "RSPLIT_SIZE" else block)
    if not match:
        raise ctx.unsupported(f"block size {block}")
    dim = match["dim"].lower()
    suffix = match["sub"] if match["sub"] is not None else sub
    for name in (f"{dim}numel_{suffix}", f"{dim}numel"):
        if isinstance(sizes.get(name), int):
            return max(1, sizes[name])
    if dim == "y":  # sub-kernels with one dimension leave YBLOCK unused
        return 1
    raise ctx.unsupported(f"block size {block} with no size of its dimension")


def program_count(sizes: dict[str, Any], blocks: dict[str, int], sub: int) -> int:
    """How many programs sub-kernel `sub` of a sequential combo kernel takes."""
    count = 1
    for dim in "xyz":
        numel = sizes.get(f"{dim}numel_{sub}")
        block = blocks.get(f"{dim.upper()}BLOCK_{sub}", blocks.get(f"{dim.upper()}BLOCK"))
        if numel is not None and block is not None:
            count *= -(-numel // block)
    return count


class Statements:
    """The statements of a kernel's body. fixed: block sizes that the body sets and that are another size here."""

    def __init__(self, ctx: Context, kernel: KernelSource, environment: dict[str, Any], programs: Programs,
                 fixed: dict[str, int] | None = None) -> None:
        self.ctx, self.kernel, self.env, self.fixed = ctx, kernel, environment, fixed or {}
        self.expressions = Expressions(ctx, kernel, environment, programs)

    def run(self, body: list[ast.stmt]) -> bool:
        """True if a return statement ended it."""
        for statement in body:
            handler = getattr(self, f"_{type(statement).__name__.lower()}", None)
            self.ctx.at(self.kernel.shift + statement.lineno)
            if handler is None:
                raise self.ctx.unsupported(f"the statement `{ast.unparse(statement)[:80]}`")
            with self.ctx.following(statement):
                if handler(statement):
                    return True
        return False

    def _assign(self, statement: ast.Assign) -> None:
        (target,) = statement.targets
        self.ctx.at(self.kernel.shift + statement.lineno, ast.unparse(target))
        self._bind(target, self.expressions.value(statement.value))
        if isinstance(target, ast.Name) and (block := REDUCED.sub(r"\1BLOCK", target.id.upper())) in self.kernel.blocks:
            self.env.setdefault(block, self.env[target.id])  # a sub-kernel of a combo kernel says what it reduces in its body

    def _augassign(self, statement: ast.AugAssign) -> None:
        self.ctx.at(self.kernel.shift + statement.lineno, ast.unparse(statement.target))
        before, step = self.expressions.value(statement.target), self.expressions.value(statement.value)
        self._bind(statement.target, binary(self.ctx, type(statement.op).__name__, before, step))

    def _bind(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.env[target.id] = value
        elif isinstance(target, ast.Tuple) and len(target.elts) == len(value):
            for t, v in zip(target.elts, value):
                self._bind(t, v)
        else:
            raise self.ctx.unsupported(f"assignment to `{ast.unparse(target)}`")

    def _annassign(self, statement: ast.AnnAssign) -> None:
        """`R0_BLOCK: tl.constexpr = 256` of a persistent reduction: the reduced size itself, not its power of two."""
        name = ast.unparse(statement.target)
        if name in self.fixed:
            self.env[name] = self.fixed[name]
            return
        value = self.expressions.value(statement.value)
        match = BLOCK.match(name)
        if match and match["dim"].startswith("R") and name != ALL_REDUCED:
            numel = self.env.get(match["dim"].lower() + "numel")
            value = numel if isinstance(numel, int) else value
        elif match and match["dim"] in "XYZ" and value < self._numel(match, value):
            raise self.ctx.unsupported(f"one program per row ({name} fixed to {value})")
        self.env[name] = value

    def _numel(self, match: re.Match[str], default: int) -> int:
        dim, sub = match["dim"].lower(), match["sub"]
        return self.env.get(f"{dim}numel_{sub}" if sub else f"{dim}numel", default)

    def _expr(self, statement: ast.Expr) -> None:
        self.expressions.value(statement.value)

    def _for(self, statement: ast.For) -> bool:
        for i in self.expressions.value(statement.iter):
            self._bind(statement.target, i)
            if self.run(statement.body):
                return True
        return False

    def _if(self, statement: ast.If) -> bool:
        test = self.expressions.value(statement.test)
        if isinstance(test, Ints):
            if test.values.size and test.values.any() != test.values.all():
                raise self.ctx.unsupported(f"`if {ast.unparse(statement.test)[:80]}`, which is true of some elements only")
            test = bool(test.values.all())
        return self.run(statement.body if test else statement.orelse)

    def _pass(self, statement: ast.Pass) -> None:
        pass

    def _return(self, statement: ast.Return) -> bool:
        if statement.value is not None:
            raise self.ctx.unsupported(f"a kernel that returns `{ast.unparse(statement.value)[:80]}`")
        return True
