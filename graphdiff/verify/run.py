"""`graphdiff verify`: apply the patch, capture the training forward again, compare again, and prove what it claims."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from graphdiff import __version__
from graphdiff.errors import GraphdiffError
from graphdiff.store import Capture
from graphdiff.verify.model import Check, Verification
from graphdiff.verify.package import edited_files, load_package

Say = Callable[[str], None]
SMALL = 200_000_000
"""Parameters up to which gradients of a float64 copy of the whole model are computed."""


def verify_patch(folder: Path, model: Any, engine: Capture, compare: Callable[[Capture, Capture], Any], *, parts: list[str] | None = None,
                 attn: str = "sdpa", progress: Say = lambda _: None) -> Verification:
    """Prove the patch in `folder` on `model` (a ModelRef) against the engine's capture.

    `compare` gives the report of two captures. Raises GraphdiffError where nothing can be tried.
    """
    package, manifest = load_package(folder)
    chosen = _chosen(parts, manifest)
    switches = {name: name in chosen for name in ("rope", "swiglu", "residual_rmsnorm")}
    apply = lambda causal: _apply(package, causal, switches)  # noqa: E731
    found = Verification(graphdiff=__version__, package=folder.name, model=model.name, parts=chosen)
    if edited := edited_files(folder, manifest):
        found.notes.append(f"note: edited since it was generated: {', '.join(edited)}. What was checked is what stands there now.")
    for left in manifest["uncovered"]:
        found.notes.append(f"note: not aligned by this patch: {', '.join(left['values'])} ({left['rule'] or 'unnamed'}): {left['reason']}")

    probe = engine.header.probe
    progress("running the training forward without the patch")
    original = _capture(model, probe, attn, None)
    progress("running the training forward with the patch")
    patched = _capture(model, probe, attn, apply)
    progress("comparing")
    before, after = compare(engine, original), compare(engine, patched)
    from graphdiff.verify import rounding

    values = [manifest["parts"][p]["values"] for p in chosen]
    aligned = sum(v["layer"] * model.layers + v["model"] for v in values)
    layer, once = (sum(v[key] for v in values) for key in ("layer", "model"))
    unit = f"{layer} a layer in {model.layers} layers" + (f", and {once} more" if once else "")
    rules = {rule for p in chosen for rule in manifest["parts"][p]["rules"]}
    found.checks.append(rounding.check_rounding(before, after, aligned, rules=rules, unit=unit))
    found.checks.append(rounding.check_matched(before, after))
    complete = set(chosen) == set(manifest["parts"]) and not manifest["uncovered"]
    progress("evaluating both programs")
    found.checks.append(rounding.check_bits(engine, patched, original, (before, after), complete))
    progress("running the kernels in Triton's interpreter")
    from graphdiff.verify.kernels import check_bits_of_kernels

    bits, found.kernels = check_bits_of_kernels(folder, manifest, engine)
    found.checks.append(bits)
    progress("checking gradients")
    found.checks += _trained(package, manifest, chosen, model, attn, apply, probe.tokens)
    return found


def _chosen(parts: list[str] | None, manifest: dict[str, Any]) -> list[str]:
    for name in parts or ():
        if name not in manifest["parts"]:
            raise GraphdiffError(f"this patch has no {name}", fix=f"its parts are {', '.join(manifest['parts'])}")
    return [p for p in manifest["parts"] if parts is None or p in parts]


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """What the package refuses, as the one error users see."""
    try:
        yield
    except RuntimeError as error:
        if type(error).__name__ != "PatchRefused":
            raise
        raise GraphdiffError(f"the patch refuses: {error}") from error


def _apply(package: Any, causal: Any, switches: dict[str, bool]) -> Any:
    with _refusals():
        return package.apply(causal, **switches)


def _capture(model: Any, probe: Any, attn: str, prepare: Any) -> Capture:
    """The training forward, probed, with its weights: in memory only."""
    from graphdiff.capture.header import training_header
    from graphdiff.capture.transformers import record_training
    from graphdiff.probe import probe as probed

    recorded = record_training(model, probe.tokens, probe.positions, attn=attn, prepare=prepare)
    program, bits = recorded.builder.program, recorded.builder.leaf_bits
    data = probed(program, bits, static_rule=True, pin_anchors=True)
    program.data.update(bits)
    return Capture(training_header(model, recorded, probe.tokens, probe.positions), program, data, {})


def _trained(package: Any, manifest: dict[str, Any], chosen: list[str], model: Any, attn: str, apply: Any, tokens: list[int]) -> list[Check]:
    """What needs the model itself: gradients, checkpointing, and taking the patch off."""
    import sys

    import torch

    from graphdiff.capture.transformers import load_model
    from graphdiff.verify.gradients import check_checkpointing, check_kernels, check_model, check_ops, gradients

    ops = sys.modules[f"{package.__name__}.ops"]
    names = {op for p in chosen for op in manifest["parts"][p]["ops"] if op != "stream"}
    checks = [check_ops(manifest["model"]["config"], ops, sorted(names)), check_kernels(manifest, ops, sorted(names))]
    causal = load_model(model, attn=attn, autocast=None)
    ids = torch.tensor([tokens])
    small = sum(p.numel() for p in causal.parameters()) <= SMALL
    original = gradients(causal, ids) if small else {}
    state = _state(causal)
    handle = apply(causal)
    checks.append(check_checkpointing(causal, ids))
    patched = gradients(causal, ids) if small else {}
    try:
        package.apply(causal)
        refused = "a second apply was not refused"
    except package.PatchRefused:
        refused = ""
    handle.revert()
    changed = refused or _changed(state, _state(causal))
    checks.append(Check(name="revert", ok=not changed, detail=changed or "every module runs the forward it ran before, transformers' classes are untouched"))
    if small:
        checks.append(check_model(patched, original, gradients(causal.double(), ids)))
    else:
        checks.append(Check(name="gradients of the model", ok=None, detail=f"the model is too large for a float64 copy (more than {SMALL:,} parameters)"))
    return checks


def _state(model: Any) -> dict[str, Any]:
    """What a patch could change: forwards of instances and classes, by identity."""
    state: dict[str, Any] = {}
    for name, module in model.named_modules():
        state[name] = (id(module), type(module), module.__dict__.get("forward"), type(module).forward)
    return state


def _changed(before: dict[str, Any], after: dict[str, Any]) -> str:
    names = [n for n in before if before[n] != after.get(n)]
    return f"{len(names)} modules are not as they were, {names[0] or 'the model'} among them" if names else ""
