"""Operands and the files behind them; an output may be none of those."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable
from pathlib import Path

from graphdiff.errors import GraphdiffError
from graphdiff.paths.output import real_path

ENGINES = ("vllm", "transformers")
"""Prefixes of operands that are captured."""
CHECKPOINT = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.model", "*.py", "*.jinja", "*.index.json", "config.json", "generation_config.json",
              "tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "preprocessor_config.json")
"""What loaders read of a checkpoint's folder."""
PREFIX = re.compile(r"([A-Za-z][\w.+-]*):(?!\\)")


def kind_of(spec: str) -> str:
    """What an operand is: `vllm`, `transformers`, `function` (FILE.py:FN) or `file`."""
    kind, colon, _ = spec.partition(":")
    if colon and kind in ENGINES:
        return kind
    return "function" if ".py:" in spec else "file"


def check_operand(spec: str, inputs: str | None = None) -> None:
    """Raises GraphdiffError for an operand that is nothing: an unknown prefix, a bare model, a file that is
    not there, a function without inputs."""
    kind, _, name = spec.partition(":")
    if kind_of(spec) in ENGINES and not name:
        raise GraphdiffError(f"{spec} names no model", fix=f"write {kind}:MODEL, for example {kind}:qwen3-tiny")
    if kind_of(spec) == "function" and not inputs:
        raise GraphdiffError(f"{spec} needs inputs", fix="give --inputs FILE.py:FN, a function of the seed that returns the arguments")
    if kind_of(spec) == "function":
        for file in (*python_file(spec), *python_file(inputs)):
            if not os.path.isfile(file):
                raise GraphdiffError(f"no such file: {file}", fix="check the path")
    if kind_of(spec) != "file" or (os.path.exists(spec) and not os.path.isdir(spec)):
        return
    known = ", ".join(f"{engine}:MODEL" for engine in ENGINES)
    prefix = PREFIX.match(spec)
    if prefix and not os.path.exists(spec):
        raise GraphdiffError(f"unknown engine prefix {prefix[1]!r}", where=spec, fix=f"known are {known}, or name a capture file or FILE.py:FN")
    if os.path.isdir(spec) and os.path.isfile(os.path.join(spec, "config.json")):
        raise GraphdiffError("a folder is not a capture", where=spec, fix=f"say what runs this model: vllm:{spec} or transformers:{spec}")
    if os.path.isdir(spec):
        raise GraphdiffError("a folder is not a capture", where=spec, fix="name the capture file in it")
    if spec and "/" not in spec and not spec.endswith((".cap", ".capture")):
        raise GraphdiffError("no such capture file", where=spec,
                             fix=f"check the path, or if it is a model say what runs it: vllm:{spec} or transformers:{spec}")
    raise GraphdiffError("no such capture file", where=spec, fix="check the path, or make it with `graphdiff capture`")


def python_file(spec: str | None) -> list[str]:
    """The file of FILE.py:FN."""
    file = (spec or "").rpartition(":")[0]
    return [file] if file else []


def checkpoint_files(model: str) -> list[str]:
    """The files that loading a model reads, as far as it is here."""
    path = Path(model).expanduser()
    if not path.is_dir():
        return [str(path)]
    try:
        return [str(file) for file in path.iterdir() if any(fnmatch.fnmatch(file.name, pattern) for pattern in CHECKPOINT)]
    except OSError:
        return []


def operand_files(spec: str) -> list[str]:
    """The files that an operand of `compare` reads."""
    kind = kind_of(spec)
    if kind in ENGINES:
        return checkpoint_files(spec.partition(":")[2])
    return python_file(spec) if kind == "function" else [spec]


def refuse_inputs(output: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]]) -> None:
    """Raises GraphdiffError if writing `output` would write one of the files that are read, under whatever name."""
    target = real_path(output)
    for file in inputs:
        if real_path(file) == target or _same(target, file):
            raise GraphdiffError(f"--output is {os.fspath(file)}, which this command reads", where=os.fspath(output), fix="give another name")


def _same(one: str, two: str | os.PathLike[str]) -> bool:
    try:
        return os.path.samefile(one, two)
    except (OSError, ValueError):
        return False
