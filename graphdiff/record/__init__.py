"""What was captured, probed: a capture in memory, or a file written in whatever process holds the parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphdiff.store import Capture

Say = Callable[[str], None]
"""Told what is being done now."""


def quiet(_: str) -> None:
    """Says nothing."""


def program_from_engine(raw: Any, request: Any) -> None:
    """In the engine's process: lower, probe, write the capture that `request` names."""
    from graphdiff.capture.header import engine_header
    from graphdiff.capture.probe_tokens import probe_tokens
    from graphdiff.capture.vllm.program import engine_program, piece_in

    tokens, positions = probe_tokens(raw.config, request.options.get("tokens", 8))
    if raw.target == "native":
        _write_native(raw, request, tokens, positions)
        return
    bucket = request.options.get("bucket", "dynamic")
    program, bits = engine_program(raw, tokens, positions, bucket)
    write_probed(Path(request.output), engine_header(raw, request, tokens, positions), program, bits,
           keep_weights=bool(request.options.get("keep_weights")),
           sources={name: piece_in(name, found, bucket).code.text for name, found in raw.pieces.items()})


def _write_native(raw: Any, request: Any, tokens: list[int], positions: list[int]) -> None:
    """The engine as it runs on this machine's CPU."""
    from graphdiff.capture.header import native_header
    from graphdiff.capture.vllm.native_program import native_program

    program, bits, notes = native_program(raw, tokens, positions)
    write_probed(Path(request.output), native_header(raw, request, tokens, positions, notes), program, bits,
           keep_weights=bool(request.options.get("keep_weights")), sources={name: code.text for name, code in raw.codes().items()})


def dumps_capture(folder: Path, *, graph: int | None = None, tokens: int = 8, seed: int = 0, any_torch: bool = False, progress: Say = quiet) -> Capture:
    """One graph of a dump, on stand-in inputs (see `pipeline.capture_dumps`), in memory."""
    import warnings

    import numpy as np

    from graphdiff.capture.bounds import check_seed
    from graphdiff.capture.dumps import dumps_header, pick, read_dumps, record_dump
    from graphdiff.probe import probe
    from graphdiff.store import Capture

    check_seed(seed)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # of damaged text, which is refused
        found = read_dumps(Path(folder), any_torch=any_torch)
        chosen = pick(found, graph)
        progress(f"evaluating {chosen.title()}")
        recorded, integers = record_dump(chosen, tokens=tokens, seed=seed)
        data = probe(recorded.program, recorded.bits, static_rule=False, pin_anchors=False)
    recorded.program.data.update(recorded.bits)
    return Capture(dumps_header(chosen, recorded, tokens, seed, integers, found.missing), recorded.program, data, recorded.sources)


def function_capture(spec: str, inputs: str, seed: int, *, compile: bool = False, target: str = "cuda:90", training: bool = False,
                     backward: bool = False, inductor: Sequence[str] = (), progress: Say = quiet) -> Capture:
    """A function's capture, in memory. Its inputs are kept, so it can be evaluated again."""
    from graphdiff.capture.bounds import check_seed
    from graphdiff.capture.function import load_function
    from graphdiff.capture.header import function_header, stable_sources
    from graphdiff.capture.inductor.options import options_for
    from graphdiff.probe import probe
    from graphdiff.store import Capture

    check_seed(seed)
    options = options_for(compile, inductor)
    progress(f"recording {spec}")
    function = load_function(spec, inputs, seed)
    if compile:
        from graphdiff.capture.compiled import record_compiled

        recorded = record_compiled(function, target, training=training, backward=backward, config_patches=options)
    else:
        from graphdiff.capture.function import record_eager

        recorded = record_eager(function)
    data = probe(recorded.program, recorded.bits, static_rule=False, pin_anchors=False)
    recorded.program.data.update(recorded.bits)
    return Capture(function_header(spec, seed, recorded), recorded.program, data, stable_sources(recorded.sources))


def write_probed(output: Path, header: Any, program: Any, bits: dict, *, keep_weights: bool, sources: dict[str, str]) -> None:
    """Probe a program and write its capture; the weights stay out unless they are to be kept."""
    from graphdiff.capture.header import stable_sources
    from graphdiff.probe import probe
    from graphdiff.program.compact import shrink_leaves
    from graphdiff.store import Capture, write_capture

    shrink_leaves(program, bits)
    data = probe(program, bits, static_rule=True, pin_anchors=True)
    if keep_weights:
        program.data.update(bits)
    write_capture(output, Capture(header, program, data, stable_sources(sources)))
