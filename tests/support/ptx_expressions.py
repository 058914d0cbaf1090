"""What each stored number is made of, read from PTX: which loads, which FP32 instructions, contracted or not.

Registers are followed through one pass over the text (masks only guard); layout moves are looked through; a row
reduction, whatever its tree, is `R`. Two kernels that store the same expressions round the same way in FP32 as well.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import tempfile
from pathlib import Path
from typing import Any

from triton_interpreter import without_decorator

Expression = str
FLOAT = re.compile(r"(fma|mul|add|sub|div|rsqrt|ex2|neg|rcp|lg2|tanh|min|max|abs)\.\S*f32(x2)?$")
COMMUTE = ("add", "mul")


def stored_expressions(ptx: str, parameters: dict[int, str]) -> set[Expression]:
    """parameters: place of each pointer argument -> what to call its loads."""
    values: dict[str, frozenset[Expression]] = {}
    found: set[Expression] = set()
    pointers: dict[str, int] = {}
    kept: frozenset[Expression] = frozenset()

    def read(token: str) -> frozenset[Expression]:
        token = token.strip()
        if token.startswith("{"):
            return frozenset().union(*(read(t) for t in token.strip("{} ").split(",")))
        if token.startswith("%"):
            return values.get(token, frozenset())
        return frozenset({f"#{token}"}) if re.match(r"0f[0-9A-F]{8}$", token) else frozenset()

    for line in _instructions(ptx):
        match = re.match(r"(?:@!?%\w+\s+)?([\w.:]+)\s+(.*)$", line)
        if not match:
            continue
        op, rest = match.groups()
        operands = _operands(rest)
        name = op.split(".")[0]
        if op.startswith("ld.param"):
            place = re.search(r"param_(\d+)", rest)
            if place and int(place.group(1)) in parameters:
                pointers[operands[0]] = int(place.group(1))
        elif op.startswith("ld.global"):
            base = _base(operands[1], pointers)
            for token in operands[0].strip("{} ").split(","):
                values[token.strip()] = frozenset({parameters.get(base, f"p{base}")})
        elif op.startswith("st.shared"):
            kept = read(operands[1])
        elif op.startswith("ld.shared") or name == "shfl":
            # A reduced number may pass through shared memory to other lanes: it stays what it is.
            finished = frozenset(e for e in kept if "R" in e and e != "R") if op.startswith("ld.shared") else frozenset()
            for token in operands[0].split("|")[0].strip("{} ").split(","):
                values[token.strip()] = finished or frozenset({"R"})
        elif op.startswith("st.global"):
            found |= {e for e in read(operands[1]) if "(" in e}
        elif FLOAT.match(op):
            values[operands[0]] = frozenset({_made(name, [read(o) for o in operands[1:]])})
        elif operands:
            for token in operands[0].strip("{} ").split(","):
                token = token.strip()
                values[token] = frozenset().union(*(read(o) for o in operands[1:])) if len(operands) > 1 else frozenset()
                base = next((pointers[o.strip()] for o in operands[1:] if o.strip() in pointers), None)
                if base is not None:
                    pointers[token] = base
    return found


def _made(name: str, operands: list[frozenset[Expression]]) -> Expression:
    parts = ["|".join(sorted(o)) or "0" for o in operands]
    if name == "add" and "R" in parts:
        return "R"
    if name in COMMUTE:
        parts.sort()
    elif name == "fma":
        parts[:2] = sorted(parts[:2])
    return f"{name}({','.join(parts)})"


def _instructions(ptx: str) -> list[str]:
    body = re.sub(r"//[^\n]*", "", ptx)
    return [s.strip() for s in re.split(r"[;\n]", body) if s.strip() and not s.strip().startswith(".")]


def _operands(text: str) -> list[str]:
    found, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "{[") - (c in "}]")
        if c == "," and depth == 0:
            found.append(text[start:i].strip())
            start = i + 1
    found.append(text[start:].strip().rstrip(";"))
    return found


def _base(address: str, pointers: dict[str, int]) -> int:
    match = re.search(r"%\w+", address)
    return pointers.get(match.group(0), -1) if match else -1


def engine_kernel(source: str, name: str) -> tuple[Any, dict[str, str]]:
    """The engine's kernel as plain triton.jit, and the types of its arguments."""
    signature: dict[str, str] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values):
                if isinstance(key, ast.Constant) and key.value == "signature":
                    signature = ast.literal_eval(value)
    folder = tempfile.mkdtemp()
    path = Path(folder, f"{name}.py")
    path.write_text(without_decorator(source))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name), signature
