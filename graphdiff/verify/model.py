"""What verifying found, as data, and how a person reads it."""

from __future__ import annotations

import textwrap
from typing import Any

import msgspec

SCHEMA = 1


class Check(msgspec.Struct, kw_only=True):
    """One claim. ok: None if it could not be tried here, and `detail` says why. outcome: what text says instead of
    `proved`, `FAILED` or `not tried`."""

    name: str
    ok: bool | None
    detail: str
    outcome: str = ""
    numbers: dict[str, Any] = {}


class KernelBits(msgspec.Struct, kw_only=True):
    """One kernel of the patch against what it mirrors. equal: None if it was not compared, and `detail` says why."""

    kernel: str
    mirrors: list[str] = []
    equal: bool | None
    detail: str
    elements: int = 0
    differing: dict[str, int] = {}
    """Kind of input -> elements whose bits differ."""


class Verification(msgspec.Struct, kw_only=True):
    """Everything one run of `verify` found."""

    schema: int = SCHEMA
    graphdiff: str
    package: str
    model: str
    parts: list[str]
    checks: list[Check] = []
    kernels: list[KernelBits] = []
    notes: list[str] = []

    @property
    def exit_status(self) -> int:
        return 1 if any(c.ok is False for c in self.checks) else 0


def as_json(found: Verification) -> bytes:
    data = {**msgspec.to_builtins(found), "exit_status": found.exit_status}
    return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"


def as_text(found: Verification) -> str:
    words = {True: "proved", False: "FAILED", None: "not tried"}
    width = max(len(c.name) for c in found.checks)
    lines = [f"{found.package} on {found.model}: {', '.join(found.parts)}"]
    for c in found.checks:
        lines += textwrap.wrap(f"{c.outcome or words[c.ok]:9}  {c.name:{width}}  {c.detail}", 110, subsequent_indent=" " * (width + 13))
    if found.kernels:
        lines += ["", "each kernel's bits against the engine's program:"]
        width = max(len(k.kernel) for k in found.kernels)
        equal = {True: "equal", False: "DIFFERENT", None: "not compared"}
        for k in found.kernels:
            lines += textwrap.wrap(f"  {equal[k.equal]:12}  {k.kernel:{width}}  {k.detail}", 110, subsequent_indent=" " * (width + 18))
        lines.append("")
    lines += [line for note in found.notes for line in textwrap.wrap(note, 110)]
    failed = sum(c.ok is False for c in found.checks)
    proved = sum(c.ok is True for c in found.checks)
    rest = "" if proved == len(found.checks) else f", {len(found.checks) - proved} prove nothing here"
    lines.append(f"{failed} of {len(found.checks)} checks failed; exit status {found.exit_status}" if failed else
                 "all checks passed; exit status 0" if not rest else f"no check failed: {proved} of {len(found.checks)} proved{rest}; exit status 0")
    return "\n".join(lines) + "\n"
