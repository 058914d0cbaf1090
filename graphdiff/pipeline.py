"""The whole job, step by step: capture -> lower -> probe -> compare -> findings -> report.

Every command of the command line is one function here; what each step does lives in the folder of its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphdiff.errors import GraphdiffError
from graphdiff.record import Say, dumps_capture, function_capture, program_from_engine, quiet, write_probed

if TYPE_CHECKING:
    from graphdiff.report.model import MachineKernel, Report
    from graphdiff.store import Capture

__all__ = ["CompareOptions", "capture_dumps", "capture_function", "capture_transformers", "capture_vllm", "compare", "compare_captures",
           "dumps_capture", "function_capture", "hardware", "operand", "patch", "program_from_engine", "rules_check", "rules_list", "rules_show",
           "show", "verify"]


@dataclass(frozen=True)
class CompareOptions:
    """What `compare` needs to make captures of operands that are no files."""

    target: str = "cuda:90"
    mode: str = "compiled"
    layers: int | None = None
    tokens: int = 8
    attn: str | None = None
    autocast: str | None = None
    fail_on: str = "moved"
    combo_kernels: bool = True
    bucket: int | None = None
    ptx: bool = False


# ---- the main job
def compare(inference: str, training: str, *, inputs: str | None = None, seed: int = 0,
            options: CompareOptions | None = None, progress: Say = quiet) -> Report:
    """Compare two operands (capture file, vllm:MODEL, transformers:MODEL, FILE.py:FN) and report.

    Raises GraphdiffError if an operand cannot be captured or read, or the two cannot be compared.
    """
    from graphdiff.capture.bounds import check_layers, check_seed
    from graphdiff.capture.inductor.targets import check_target
    from graphdiff.paths import check_operand

    options = options or CompareOptions()
    check_target(options.target)
    check_seed(seed)
    check_layers(options.layers)
    for spec in (inference, training):  # before an engine starts: a wrong name must not cost two minutes
        check_operand(spec, inputs)
    one = operand(inference, inputs, seed, options, progress)
    two = operand(training, inputs, seed, options, progress)
    report = compare_captures(one, two, progress=progress, names=(inference, training))
    if options.ptx:
        report.hardware = hardware(one, progress)
    return report


def hardware(capture: Capture, progress: Say = quiet) -> list[MachineKernel]:
    """The capture's Triton kernels compiled with no GPU, and its program held against their machine code.

    Only kernels that pass a strict grammar are compiled, in a child process. Raises GraphdiffError without Triton, or
    for a capture that has no Triton kernels.
    """
    from graphdiff.hardware import check_capture

    progress("compiling kernels")
    return check_capture(capture, progress)


def compare_captures(inference: Capture, training: Capture, *, progress: Say = quiet, names: tuple[str, str] = ("", "")) -> Report:
    """Data against data: no torch, no engine, no weights."""
    import numpy as np

    with np.errstate(all="ignore"):  # overflow and NaN are results here
        return _compared(inference, training, progress, names)


def _compared(inference: Capture, training: Capture, progress: Say, names: tuple[str, str]) -> Report:
    from graphdiff.compare.diff import anything_matched, diff_sides
    from graphdiff.compare.inputs import on_the_same_inputs
    from graphdiff.compare.prepare import check_comparable, sides_of
    from graphdiff.compare.transplant import Bench
    from graphdiff.findings import report_of
    from graphdiff.findings.header import coverage_of, notes_of, side_of
    from graphdiff.report.verdict import conclude, nothing_in_common
    from graphdiff.rules import name_values

    check_comparable(inference, training)
    inference, training = on_the_same_inputs(inference, training)
    progress("pairing values")
    one, two, wide_leaves = sides_of(inference, training)
    diff = diff_sides(one, two)
    progress("proving regions on bits")
    bench = Bench(diff, wide_leaves)
    report = report_of(diff, bench, (side_of(inference, names[0]), side_of(training, names[1])),
                       coverage_of(inference, training), notes_of(inference, training), name_values)
    if not anything_matched(diff) or nothing_in_common(report):
        raise GraphdiffError("no value of one side is formed on the other: these are captures of different computations",
                             where=" and ".join(n for n in names if n), fix="capture both sides from the same model, weights and probe")
    return conclude(report) or report


def operand(spec: str, inputs: str | None, seed: int, options: CompareOptions, progress: Say = quiet) -> Capture:
    """One side, from wherever it is."""
    import tempfile

    from graphdiff.paths import kind_of
    from graphdiff.store import read_capture

    kind, name = kind_of(spec), spec.partition(":")[2]
    if kind in ("vllm", "transformers"):
        with tempfile.TemporaryDirectory(prefix="graphdiff-") as folder:
            file = Path(folder) / f"{kind}.capture"
            if kind == "vllm":
                capture_vllm(name, file, target=options.target, mode=options.mode, layers=options.layers, seed=seed, tokens=options.tokens,
                             combo_kernels=options.combo_kernels, bucket=options.bucket, progress=progress)
            else:
                capture_transformers(name, file, layers=options.layers, seed=seed, tokens=options.bucket or options.tokens, attn=options.attn,
                                     autocast=options.autocast, progress=progress)
            return read_capture(file)
    return read_capture(Path(spec)) if kind == "file" else function_capture(spec, inputs or "", seed, progress=progress)


# ---- captures
def capture_vllm(model: str, output: Path, *, target: str = "cuda:90", mode: str = "compiled", layers: int | None = None, seed: int = 0, tokens: int = 8,
                 combo_kernels: bool = True, graph_partition: bool = False, inductor: Sequence[str] = (), in_process: bool = False,
                 keep_weights: bool = False, bucket: int | None = None, progress: Say = quiet) -> None:
    """Run vLLM and write what it compiled. The capture is written by the process that holds the parameters.

    bucket: compile for exactly so many tokens (decode: 1) and record that schedule; the probe has as many tokens.
    graph_partition: with use_inductor_graph_partition, the whole model as one graph. inductor: NAME=VALUE options.
    mode: `compiled`, or `eager` for the engine as this machine runs it with enforce_eager (target native).
    """
    from graphdiff.capture.inductor.options import ENGINE, options_from
    from graphdiff.capture.models import resolve_model
    from graphdiff.capture.vllm.run import check_mode, write_engine_capture
    from graphdiff.capture.vllm.versions import installed_version
    from graphdiff.paths import checkpoint_files, file_behind
    from graphdiff.store import check_output

    check_output(output, checkpoint_files(model))
    check_mode(target, mode, bucket, graph_partition=graph_partition, inductor=bool(inductor))
    installed_version()
    options = options_from(inductor, ENGINE)
    reference = resolve_model(model, layers=layers, seed=seed)
    with file_behind(output, "the capture") as file:
        write_engine_capture(reference, file, in_process=in_process, target=target, mode=mode, combo_kernels=combo_kernels, progress=progress,
                             graph_partition=graph_partition, inductor=options, compile_sizes=() if bucket is None else (bucket,),
                             options={"tokens": bucket or tokens, "bucket": bucket or "dynamic", "keep_weights": keep_weights, "config": reference.config,
                                      "layers": reference.layers, "synthetic": reference.synthetic, "seed": reference.seed})


def capture_transformers(model: str, output: Path, *, layers: int | None = None, seed: int = 0, tokens: int = 8, attn: str | None = None,
                         autocast: str | None = None, checkpointing: bool = False, keep_weights: bool = False,
                         compile: bool = False, backward: bool = False, target: str = "native", inductor: Sequence[str] = (), progress: Say = quiet) -> None:
    """Run the training forward of transformers and write what it did.

    compile: as torch.compile makes it for `target`, `native` (this machine; `backward`: that too) or `cuda:90` (no GPU
    needed), with Inductor's options `inductor` (NAME=VALUE).
    attn: default sdpa, as transformers; eager for compiled CUDA code, where sdpa is one opaque op.
    """
    from graphdiff.capture.header import training_header
    from graphdiff.capture.inductor.options import options_for
    from graphdiff.capture.inductor.targets import check_target
    from graphdiff.capture.models import resolve_model
    from graphdiff.capture.probe_tokens import probe_tokens
    from graphdiff.capture.transformers import record_training
    from graphdiff.capture.transformers_compiled import check_backward, record_compiled_training
    from graphdiff.capture.transformers_cuda import record_cuda_training
    from graphdiff.paths import checkpoint_files
    from graphdiff.store import check_output

    check_output(output, checkpoint_files(model))
    check_target(target)
    check_backward(backward, compile)
    options = options_for(compile, inductor)
    attn = attn or ("eager" if compile and target != "native" else "sdpa")
    reference = resolve_model(model, layers=layers, seed=seed)
    ids, positions = probe_tokens(reference.config, tokens)
    progress(f"running the training forward of {reference.name}")
    if compile:
        if checkpointing:
            raise GraphdiffError("a compiled forward with checkpointing is not captured", where="--compile --checkpointing", fix="leave one out")
        if target == "native":
            recorded = record_compiled_training(reference, ids, positions, attn=attn, autocast=autocast, backward=backward, config_patches=options)
        elif autocast:
            raise GraphdiffError(f"compiled training for {target} is not captured under autocast", where="--autocast", fix="leave it out, or use --target native")
        else:
            recorded = record_cuda_training(reference, ids, positions, target, attn=attn, backward=backward, config_patches=options)
    else:
        recorded = record_training(reference, ids, positions, attn=attn, autocast=autocast, checkpointing=checkpointing)
    progress("probing")
    write_probed(Path(output), training_header(reference, recorded, ids, positions), recorded.builder.program, recorded.builder.leaf_bits,
           keep_weights=keep_weights, sources=recorded.sources)


def capture_function(spec: str, inputs: str, output: Path, *, compile: bool = False, target: str = "cuda:90", seed: int = 0,
                     training: bool = False, backward: bool = False, inductor: Sequence[str] = (), progress: Say = quiet) -> None:
    """Record any torch callable, eager or as Inductor compiles it (training: with gradients, backward: that too).

    inductor: options of Inductor, NAME=VALUE.
    """
    from graphdiff.capture.inductor.targets import check_target
    from graphdiff.paths import python_file
    from graphdiff.store import check_output, write_capture

    check_output(output, [*python_file(spec), *python_file(inputs)])
    check_target(target)
    if (training or backward) and not compile:
        raise GraphdiffError("--training and --backward are about compiled code", fix="add --compile; eager training is the same forward without it")
    write_capture(Path(output), function_capture(spec, inputs, seed, compile=compile, target=target, training=training, backward=backward,
                                                 inductor=inductor, progress=progress))


def capture_dumps(folder: Path, output: Path, *, graph: int | None = None, tokens: int = 8, seed: int = 0, any_torch: bool = False,
                  progress: Say = quiet) -> None:
    """Record one graph of what another machine dumped (TORCH_TRACE, TORCH_LOGS, a compile cache), on stand-in inputs.

    Nothing of the dump is executed, and torch is not needed. graph: its number from 1, where there are several.
    """
    from graphdiff.store import check_output, write_capture

    check_output(output, [folder])
    write_capture(Path(output), dumps_capture(folder, graph=graph, tokens=tokens, seed=seed, any_torch=any_torch, progress=progress))


# ---- the patch and its proof
def patch(inference: Path, training: Path, output: Path, *, report: Path | None = None, progress: Say = quiet) -> tuple[Any, list[Path]]:
    """Write the package that makes training round where inference rounds. Returns (the plan, the files written).

    `report` is the comparison of the two captures, if it was kept; else they are compared. Raises GraphdiffError.
    """
    from graphdiff.patch import check_folder, kernels_for, ops_of, plan_patch, write_package
    from graphdiff.patch.given import digest, given_report
    from graphdiff.store import read_capture

    check_folder(output)
    one, two = read_capture(Path(inference)), read_capture(Path(training))
    if report is None:
        found = compare_captures(one, two, progress=progress, names=(str(inference), str(training)))
    else:
        found = given_report(Path(report), one, two)
    progress("writing the package")
    plan = plan_patch(found, two.header)
    written = write_package(plan, Path(output), found, (one.header, two.header), (digest(inference), digest(training)),
                            kernels_for(one, ops_of(plan), Path(output).resolve().name, everything=bool(plan.uncovered)))
    return plan, written


def verify(folder: Path, model: str, *, inference: str | None = None, layers: int | None = None, seed: int = 0, parts: list[str] | None = None,
           attn: str = "sdpa", progress: Say = quiet) -> Any:
    """Prove a patch on a model: `inference` is the engine's capture, by default made again. Raises GraphdiffError."""
    import tempfile

    from graphdiff.capture.models import resolve_model
    from graphdiff.store import read_capture
    from graphdiff.verify import verify_patch
    from graphdiff.verify.package import engine_options, load_package

    _, manifest = load_package(Path(folder))  # before the engine starts: a wrong folder must not cost two minutes
    reference = resolve_model(model, layers=layers, seed=seed)
    with tempfile.TemporaryDirectory(prefix="graphdiff-") as scratch:
        file = Path(inference) if inference else Path(scratch) / "engine.capture"
        if inference is None:
            capture_vllm(model, file, layers=layers, seed=seed, keep_weights=True, progress=progress, **engine_options(manifest))
        engine = read_capture(file)
        if engine.header.kind != "vllm":
            raise GraphdiffError(f"--inference is a capture of a {engine.header.kind} program, not of the engine", where=str(file),
                                 fix="give what `graphdiff capture vllm` wrote, or leave --inference out")
        if engine.header.model.fingerprint != reference.fingerprint:
            raise GraphdiffError("the engine's capture is of another model or other weights", where=f"{engine.header.model.name} and {reference.name}",
                                 fix="give the model it was captured from")
        return verify_patch(Path(folder), reference, engine, compare_captures, parts=parts, attn=attn, progress=progress)


# ---- one capture, and the rules
def show(path: Path, *, ptx: bool = False, progress: Say = quiet) -> dict[str, Any]:
    """Kernels, values and roundings of one capture, as plain data; with `ptx` also its kernels against machine code."""
    from graphdiff.findings.listing import listing_of
    from graphdiff.rules import name_values
    from graphdiff.store import read_capture

    capture = read_capture(Path(path))
    listing = listing_of(capture, name_values)
    if ptx:
        from graphdiff.report.machine import rows

        listing["machine code"] = rows(hardware(capture, progress))
    return listing


def rules_list() -> list[dict[str, Any]]:
    """Every rule: name, title, kind, what it is for."""
    from graphdiff import rules

    return rules.rules_list()


def rules_show(name: str) -> dict[str, Any]:
    """One rule, whole. Raises GraphdiffError for an unknown name."""
    from graphdiff import rules

    return rules.rules_show(name)


def rules_check(progress: Say = quiet) -> list[dict[str, Any]]:
    """Problems of the rules: an example that does not fire, or fires when it should be silent. Empty: all is well."""
    from graphdiff import rules

    return rules.rules_check(lambda one, two, inputs: compare(one, two, inputs=inputs), progress)
