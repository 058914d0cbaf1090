"""Inductor's options as a user gives them, NAME=VALUE, checked against the installed torch before anything runs.

Without options given nothing here imports torch.
"""

from __future__ import annotations

import difflib
import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from graphdiff.errors import GraphdiffError

Plain = bool | int | float | str | None
"""What an option's value may be."""

OFF = "graphdiff switches it off: nothing may depend on a cache, a timing or a second process"
FIXED = {
    **dict.fromkeys(("force_disable_caches", "fx_graph_cache", "fx_graph_remote_cache", "compile_threads", "max_autotune", "max_autotune_gemm",
                     "max_autotune_pointwise", "benchmark_combo_kernel", "triton.autotune_at_compile_time", "shape_padding"), OFF),
    **dict.fromkeys(("cpp_wrapper", "triton.cudagraphs"), "nothing that is captured is ever launched"),
    **dict.fromkeys(("cpu_backend", "cuda_backend"), "graphdiff reads Triton for CUDA and C++ for this machine"),
}
"""Options that a capture cannot leave to the user, with the reason."""

ENGINE = {"combo_kernels": "give --combo-kernels or --no-combo-kernels", "graph_partition": "give --graph-partition or --no-graph-partition"}
"""Those that `capture vllm` has a switch of its own for."""

WHERE = "--inductor"
_BOOLEAN = {"true": True, "True": True, "false": False, "False": False}


def options_from(given: Sequence[str], switches: Mapping[str, str] | None = None) -> dict[str, Plain]:
    """NAME=VALUE each -> values by name, of the types that Inductor's options have.

    `switches` are names that this command has a switch for. Raises GraphdiffError for what is not NAME=VALUE, an
    unknown name (with close ones), one that graphdiff fixes, a value of another type, and two values for one name.
    """
    if not given:
        return {}
    from graphdiff.capture.inductor.versions import backend

    known: dict[str, Any] = backend().option_types()
    found: dict[str, Plain] = {}
    for item in given:
        name, equals, text = item.partition("=")
        if not equals or not name:
            raise GraphdiffError(f"{item!r} is not NAME=VALUE", where=WHERE, fix="write for example --inductor emulate_precision_casts=true")
        _check_name(name, known, switches or {})
        value = _value(name, text, known[name])
        if found.setdefault(name, value) != value:
            raise GraphdiffError(f"two values for {name}: {found[name]} and {value}", where=WHERE, fix="give one")
    return found


def options_for(compiled: bool, given: Sequence[str]) -> dict[str, Plain]:
    """As `options_from`; of a side that is not compiled there are none. Raises GraphdiffError."""
    if given and not compiled:
        raise GraphdiffError("eager code has no options of Inductor", where=WHERE, fix="add --compile, or leave it out")
    return options_from(given)


def in_force(given: Mapping[str, Any]) -> dict[str, Plain]:
    """What a capture says of its options: those given, and every other that is set and decides where code rounds."""
    from graphdiff.capture.inductor.versions import backend

    return dict(sorted({**backend().rounding_options(given), **given}.items()))


def rounding_in(patches: Mapping[str, Any]) -> dict[str, Plain]:
    """Of options that somebody else gives Inductor: those that decide where code rounds and are not at their default."""
    from graphdiff.capture.inductor.versions import backend

    return backend().rounding_options(patches)


def _check_name(name: str, known: Mapping[str, Any], switches: Mapping[str, str]) -> None:
    if name in FIXED:
        raise GraphdiffError(f"{name} cannot be set for a capture", where=WHERE, fix=f"leave it out; {FIXED[name]}")
    if name in switches:
        raise GraphdiffError(f"{name} has a switch of its own", where=WHERE, fix=switches[name])
    if name in known:
        return
    close = difflib.get_close_matches(name, known, n=3) or [n for n in known if n.endswith("." + name)][:3]
    raise GraphdiffError(f"Inductor has no option {name!r}", where=WHERE,
                         fix=f"did you mean {' or '.join(close)}?" if close else "torch._inductor.list_options() names them")


def _value(name: str, text: str, kind: Any) -> Plain:
    """`text` as one of the plain types of `kind` (an annotation)."""
    alternatives = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    plain = [a for a in alternatives if a in _READ or get_origin(a) is Literal]
    if not plain:
        raise GraphdiffError(f"{name} takes no plain value", where=WHERE, fix="leave it out; only switches, numbers and words can be given")
    if type(None) in alternatives and text in ("none", "None"):
        return None
    for alternative in plain:
        if get_origin(alternative) is Literal:
            value = next((a for a in get_args(alternative) if str(a) == text), None)
        else:
            value = _READ[alternative][0](text)
        if value is not None:
            return value
    words = [f"one of {', '.join(map(str, get_args(a)))}" if get_origin(a) is Literal else _READ[a][1] for a in plain]
    words += ["none"] if type(None) in alternatives else []
    raise GraphdiffError(f"{name} is {' or '.join(words)}, not {text!r}", where=WHERE, fix=f"give {name}=VALUE with such a value")


def _integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None


def _number(text: str) -> float | None:
    try:
        value = float(text) if re.fullmatch(r"[-+0-9.eE]+", text) else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


_READ: dict[Any, tuple[Callable[[str], Plain], str]] = {
    bool: (_BOOLEAN.get, "true or false"),
    int: (_integer, "an integer"),
    float: (_number, "a number"),
    str: (lambda text: text or None, "a word"),
}
