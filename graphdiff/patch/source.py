"""The installed source of transformers, read as text: functions found, fingerprinted and edited. Nothing is imported."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import textwrap
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from graphdiff.errors import GraphdiffError
from graphdiff.patch.recipe import Edit, Function

CHANGED = "# <- graphdiff"


class NoFit(Exception):
    """An edit does not fit the source; the message says which."""


@dataclass(frozen=True)
class Source:
    """One module's text. `lines` are 1-based in positions, as in ast."""

    module: str
    path: Path
    text: str

    @property
    def tree(self) -> ast.Module:
        return _parse(self.text)

    def function(self, qualname: str) -> ast.FunctionDef:
        """`Class.method` or a function of the module. Raises NoFit."""
        scope: list[ast.stmt] = self.tree.body
        node: ast.stmt | None = None
        for part in qualname.split("."):
            node = next((n for n in scope if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == part), None)
            if node is None:
                raise NoFit(f"{self.module} has no {qualname}")
            scope = node.body
        if not isinstance(node, ast.FunctionDef):
            raise NoFit(f"{self.module} has no function {qualname}")
        return node

    def segment(self, qualname: str) -> str:
        """The function's lines, decorators included."""
        node = self.function(qualname)
        return "\n".join(self.text.splitlines()[_first_line(node) - 1:node.end_lineno])

    def fingerprint(self, qualname: str) -> str:
        """sha256 of the function's lines."""
        return hashlib.sha256(self.segment(qualname).encode()).hexdigest()

    def where(self, qualname: str) -> str:
        return f"{self.module.partition('.')[2].replace('.', '/')}.py:{_first_line(self.function(qualname))}"


@cache
def _parse(text: str) -> ast.Module:
    return ast.parse(text)


def _first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


def transformers_version() -> str:
    try:
        return importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError as error:
        raise GraphdiffError("transformers is not installed", fix="pip install 'graphdiff-rl[transformers]'") from error


@cache
def read_source(module: str) -> Source:
    """A module of transformers as text. Raises GraphdiffError if it is not there."""
    spec = importlib.util.find_spec("transformers")
    if spec is None or not spec.submodule_search_locations:
        raise GraphdiffError("transformers is not installed", fix="pip install 'graphdiff-rl[transformers]'")
    path = Path(spec.submodule_search_locations[0]).joinpath(*module.split(".")[1:]).with_suffix(".py")
    try:
        return Source(module, path, path.read_text("utf-8"))
    except OSError as error:
        raise GraphdiffError(f"transformers {transformers_version()} has no {module}", fix="its recipe is for another version") from error


def modeling_module(model_type: str) -> str:
    return f"transformers.models.{model_type}.modeling_{model_type}"


def find_expression(source: Source, qualname: str, expression: str, occurrence: int) -> tuple[int, int, int]:
    """(line, column, end column) of an expression in a function. Raises NoFit."""
    wanted = ast.dump(ast.parse(expression, mode="eval").body)
    found = sorted((n.lineno, n.col_offset, n.end_col_offset or 0) for n in ast.walk(source.function(qualname))
                   if isinstance(n, ast.expr) and ast.dump(n) == wanted)
    if len(found) < max(occurrence, 1) or (occurrence == 0 and len(found) != 1):
        raise NoFit(f"`{expression}` stands {len(found)} times in {qualname}")
    return found[max(occurrence, 1) - 1]


def edited(source: Source, function: Function, qualname: str) -> str:
    """The function's text under its edits, as a top-level function named `function.name`. Raises NoFit."""
    node = source.function(qualname)
    if function.whole:
        return _renamed(function.whole.strip(), function.name)
    lines = source.text.splitlines()
    first = _first_line(node)
    replaced: dict[int, tuple[int, list[str]]] = {}
    changed = [*lines]
    for edit in function.edits:
        if edit.statement:
            statement = _statement(node, edit, qualname)
            new = _indented(edit.replace, statement.col_offset)
            replaced[statement.lineno] = (statement.end_lineno or statement.lineno, new)
        elif edit.signature:
            _replace_signature(changed, node, edit, qualname)
        else:
            argument = _argument(node, edit, qualname)
            line = changed[argument.lineno - 1]
            changed[argument.lineno - 1] = line[:argument.col_offset] + edit.replace + line[argument.end_col_offset:] + f"  {CHANGED}"
    out = []
    n = first
    dropped = {d.lineno for d in node.decorator_list if ast.unparse(d) in function.without_decorators}
    while n <= (node.end_lineno or n):
        if n in replaced:
            end, new = replaced[n]
            out.extend(new)
            n = end + 1
            continue
        if n not in dropped:
            out.append(changed[n - 1])
        n += 1
    return _renamed(textwrap.dedent("\n".join(out)), function.name)


def _statement(node: ast.FunctionDef, edit: Edit, qualname: str) -> ast.stmt:
    wanted = ast.dump(ast.parse(edit.statement).body[0]) if not edit.statement.startswith("return") else \
        ast.dump(ast.parse("def f():\n " + edit.statement).body[0].body[0])  # type: ignore[attr-defined]
    found = sorted((n for n in ast.walk(node) if isinstance(n, ast.stmt) and ast.dump(n) == wanted), key=lambda n: n.lineno)
    if len(found) < max(edit.occurrence, 1) or (edit.occurrence == 0 and len(found) != 1):
        raise NoFit(f"`{edit.statement}` stands {len(found)} times in {qualname}")
    return found[max(edit.occurrence, 1) - 1]


def _argument(node: ast.FunctionDef, edit: Edit, qualname: str) -> ast.expr:
    found = [a for n in ast.walk(node) if isinstance(n, ast.Call) and ast.unparse(n.func) == edit.call
             for a in n.args if ast.unparse(a) == edit.argument]
    if len(found) != 1:
        raise NoFit(f"`{edit.call}` takes `{edit.argument}` {len(found)} times in {qualname}")
    return found[0]


def _replace_signature(changed: list[str], node: ast.FunctionDef, edit: Edit, qualname: str) -> None:
    """Signatures stand on one line or one parameter a line; the edit is of `name: annotation, `."""
    wanted = edit.signature.strip()
    lines = [n for n in range(node.lineno, node.body[0].lineno) if wanted in changed[n - 1]]
    if len(lines) != 1:
        raise NoFit(f"`{wanted}` stands {len(lines)} times in the signature of {qualname}")
    line = changed[lines[0] - 1]
    indent = line[:len(line) - len(line.lstrip())]
    new = edit.replace.strip().replace("\n", f"  {CHANGED}\n{indent}")
    changed[lines[0] - 1] = line.replace(wanted, new, 1) + f"  {CHANGED}"


def _indented(text: str, column: int) -> list[str]:
    lines = [line for line in text.strip("\n").splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith("("):  # one statement over several lines: mark its first
        return [" " * column + line + (f"  {CHANGED}" if i == 0 else "") for i, line in enumerate(lines)]
    return [f"{' ' * column}{line}  {CHANGED}" for line in lines]


def _renamed(text: str, name: str) -> str:
    return text.replace("def forward(", f"def {name}(", 1)


def free_names(text: str, source: Source) -> list[str]:
    """Names of the module that a function's text uses, to be imported from it."""
    defined = {n.name for n in source.tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    for n in source.tree.body:
        if isinstance(n, ast.Import | ast.ImportFrom):
            defined |= {(a.asname or a.name).partition(".")[0] for a in n.names}
        elif isinstance(n, ast.Assign):
            defined |= {t.id for t in n.targets if isinstance(t, ast.Name)}
    used = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
    return sorted(used & defined)
