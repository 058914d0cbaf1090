"""Short names of values, as a person would write them."""

from __future__ import annotations

import ast
import math
import re
from functools import lru_cache

from graphdiff.program.dtypes import decode
from graphdiff.rules.graph import ValueGraph
from graphdiff.rules.kinds import Found

LONGEST = 60
SUFFIX = re.compile(r"(_proj|_norm|_layernorm|_fn|_linear)+$")
CONTAINER = re.compile(r"|\d+|model|layers?|blocks?|h|self_attn|attn|attention|mlp|feed_forward|language_model|transformer|experts?|act")
PEELED = frozenset({"float", "to", "type_as", "contiguous", "view", "reshape", "unsqueeze", "transpose", "half", "bfloat16"})
ADDING = frozenset({"index_add_", "index_add", "scatter_add_", "scatter_add"})
"""Methods that add their last argument to what they are called on."""
INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mm": "@"}


def short_name(graph: ValueGraph, label: str, found: Found, exactly: bool = False) -> str:
    """A word for what a variable is bound to; `label` is the rule's own word, used where nothing better is known.
    exactly: with the sign, scale or maximum it is read through, which rules look through."""
    if exactly and (changes := exact_ops(graph, found)):
        return _from_source(graph, found) or _changed(graph, short_name(graph, label, found), changes)
    b = found.bases[0]
    node, site = graph.program.nodes[b], graph.program.site(b)
    if node.op == "const":
        return number(node.attrs["value"])
    own = _leaf_name(str(node.attrs.get("name", ""))) if node.kind == "leaf" else module_name(site.module) or _linear(graph, b)
    if len(label) > 1 and _is_part(graph, found):
        return label
    if own in ("qkv", "qkv_proj") and found.operand is not None:
        return "k" if _starts_late(graph, found) else "q"
    if node.kind == "leaf" and node.size == 1 and not own and b in graph.program.data:
        return number(float(decode(graph.program.data[b], node.dtype).reshape(-1)[0]))
    return own or _from_source(graph, found) or (label if len(label) > 1 else _bare(graph, b))


def _bare(graph: ValueGraph, b: int) -> str:
    """A name inside a kernel; of eager code the text that forms the value, or its op."""
    name, op = graph.program.site(b).name, graph.program.nodes[b].op
    if not name.startswith("aten."):
        return name or op
    text = source_text(graph, b)
    return text if text and len(text) <= LONGEST // 2 and not graph.calls.is_step(b) else f"{op}(...)"


def exact_ops(graph: ValueGraph, found: Found) -> list[int]:
    """Exact ops (no rounds) between what an operand reads and its base, last first; none where there are several ways."""
    passed: list[int] = []
    base, operand = found.bases[0], found.operand
    while operand is not None and len(operand.nodes) == 1 and (n := operand.nodes[0]) != base:
        node = graph.program.nodes[n]
        if node.op != "round":
            passed.append(n)
        operand = next((o for o in node.operands if base in graph.operand_bases(o)), None)
    return passed if operand is not None and operand.nodes == (base,) else []


def _changed(graph: ValueGraph, name: str, changes: list[int]) -> str:
    """`-x`, `0.5 * x`, `amax(x)`."""
    for n in reversed(changes):
        node = graph.program.nodes[n]
        scale = next((graph.program.nodes[b].attrs["value"] for o in node.operands for b in graph.operand_bases(o)
                      if graph.program.nodes[b].op == "const"), None)
        if node.op == "neg":
            name = f"-{name}"
        elif node.op != "mul" or scale is None:
            name = f"{node.op}({name})"
        elif scale != 1:
            name = f"{number(scale)} * {name}"
    return name


def number(value: float) -> str:
    return f"{value:.6g}"


def module_name(path: str) -> str:
    """`model.layers.0.self_attn.q_proj` -> `q`; empty where the last part only holds others (`mlp`, `3`)."""
    last = path.rpartition(".")[2]
    return "" if CONTAINER.fullmatch(last) else SUFFIX.sub("", last) or last


def _linear(graph: ValueGraph, b: int) -> str:
    """A product with a named weight, called after it: `qkv`."""
    if graph.program.nodes[b].op != "mm":
        return ""
    for leaf in graph.reads(b)[1][1]:
        name, dot, _ = _leaf_name(str(graph.program.nodes[leaf].attrs.get("name", ""))).rpartition(".")
        if dot:
            return SUFFIX.sub("", name) or name
    return ""


def _leaf_name(name: str) -> str:
    """`model.layers.0.self_attn.q_proj.weight`, or Dynamo's spelling of it -> `q_proj.weight`."""
    if dynamo := re.fullmatch(r".*_modules_(\w+?)_parameters_(\w+?)_*", name):
        name = f"{dynamo[1]}.{dynamo[2]}"
    parts = name.split(".")
    if len(parts) > 1 and parts[-1] in ("weight", "bias"):
        return f"{parts[-2]}.{parts[-1]}"
    return parts[-1] if parts[-1] not in ("const", "constant", "bits") else ""


def _is_part(graph: ValueGraph, found: Found) -> bool:
    """The operand reads a slice of one wide value (a merged projection)."""
    if found.operand is None or len(found.bases) != 1:
        return False
    node = graph.program.nodes[found.bases[0]]
    return node.kind in ("leaf", "anchor") and math.prod(found.operand.shape) < node.size


def _starts_late(graph: ValueGraph, found: Found) -> bool:
    """Keys start at a third of a merged projection's row or later; half a query head starts at a sixth or earlier."""
    width = graph.program.nodes[found.bases[0]].shape[-1]
    span = graph.span(found.reader, found.bases[0], 0) if found.reader >= 0 else None
    return span is not None and span[0] % width >= width / 4


def _from_source(graph: ValueGraph, found: Found) -> str:
    if found.reader < 0 or found.operand is None:
        return source_text(graph, found.bases[0])
    reader = graph.program.nodes[found.reader]
    if set(found.bases) & set(graph.calls.of(found.reader)):
        return ""  # a step of the reader's own call: no part of its text
    slot = next((i for i, o in enumerate(reader.operands) if o is found.operand), 0)
    return operand_text(graph.program.site(found.reader).text, slot, "" if graph.calls.is_composite(found.reader) else reader.op)


@lru_cache(maxsize=4096)
def operand_text(text: str, slot: int, op: str) -> str:
    """The left or right side of `a + b`, an argument of a call, without casts and views; empty if it is long, or not known.
    op: what the text is, if it is one op; of another call only the sole operand is known."""
    tree = _parsed(text.strip())
    operands = _operands(_peel(tree), op) if tree is not None else []
    values = [o for o in operands if any(isinstance(part, ast.Name) for part in ast.walk(o))]  # no numbers, no shapes
    if len(values) == 1:
        tree = values[0]
    elif op and slot < len(operands):
        tree = operands[slot]
    else:
        return ""
    found = ast.unparse(_peel(tree))
    return found if len(found) <= LONGEST // 2 else ""


def _parsed(text: str) -> ast.expr | None:
    """An expression, or `a += b` as `a + b`."""
    try:
        tree = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if len(tree) == 1 and isinstance(tree[0], ast.AugAssign):
        return ast.BinOp(tree[0].target, tree[0].op, tree[0].value)
    return tree[0].value if len(tree) == 1 and isinstance(tree[0], ast.Expr) else None


def _operands(tree: ast.expr, op: str) -> list[ast.expr]:
    """What an expression is made of, in order."""
    if isinstance(tree, ast.BinOp):
        return [tree.left, tree.right]
    if isinstance(tree, ast.UnaryOp):
        return [tree.operand]
    if not isinstance(tree, ast.Call) or any(isinstance(a, ast.Starred) for a in tree.args):
        return []
    if isinstance(tree.func, ast.Attribute) and tree.func.attr in ADDING and len(tree.args) > 1:
        return [tree.func.value, tree.args[-1]]
    return [tree.func.value, *tree.args] if isinstance(tree.func, ast.Attribute) and _is_method(tree.func, op) else list(tree.args)


def _is_method(function: ast.Attribute, op: str) -> bool:
    """`x.mul(y)` and not `torch.mul(x, y)` or `self.norm(x)`."""
    root = function.value
    while isinstance(root, ast.Attribute):
        root = root.value
    name = root.id if isinstance(root, ast.Name) else ""
    return name not in ("torch", "F", "nn", "functional") and (name != "self" or function.attr.rstrip("_") == op)


def _peel(tree: ast.expr) -> ast.expr:
    while isinstance(tree, ast.Call) and isinstance(tree.func, ast.Attribute) and tree.func.attr in PEELED \
            and not (isinstance(tree.func.value, ast.Name) and tree.func.value.id in ("torch", "F")):
        tree = tree.func.value
    return tree


def source_text(graph: ValueGraph, node: int) -> str:
    """The source text of a value on one line, cut where it is long."""
    text = " ".join(graph.program.site(node).text.split())
    return text if len(text) <= LONGEST else text[:LONGEST - 3] + "..."


def generic_name(graph: ValueGraph, bases: tuple[int, ...]) -> str:
    """What to call a value no rule names: its name, its source text, or its op and operands."""
    b = bases[0]
    node = graph.program.nodes[b]
    if node.op == "const":
        return number(node.attrs["value"])
    if node.kind == "leaf" and (name := _leaf_name(str(node.attrs.get("name", "")))):
        return name
    if node.op in ("mm", "embedding") and (name := graph.program.site(b).module.rpartition(".")[2]):
        return f"{name}(...)"
    if node.op == "mm" and (name := _linear(graph, b)):
        return f"{name}_proj(...)" if name in ("qkv", "q", "k", "v", "o", "gate", "up", "gate_up", "down") else f"{name}(...)"
    if node.op == "attention":
        return "attention output"
    if text := source_text(graph, b):
        return f"{node.op} in {text}" if graph.calls.is_step(b) else text
    words = []
    for o in node.operands:
        read = graph.operand_bases(o)
        words.append(short_name(graph, "", Found(read, o, b), exactly=True) if read else "0")
    if node.op in INFIX and len(words) == 2:
        return f"{words[0]} {INFIX[node.op]} {words[1]}"
    return f"{node.op}({', '.join(words)})"
