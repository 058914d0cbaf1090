"""Regions compiled by Inductor for cuda:90, emitted and run in Triton's repaired interpreter: bits and gradients.

Partial and interleaved rotation, merged inputs, FP16, widths that are no power of two, several reductions.
"""

from pathlib import Path

import emit_functions
import pytest
import torch
from emit_functions import FITTING, TOKENS
from emitted import Call, call, load_package, run_in_interpreter
from regions import NUMBERS, arguments_of, by_program, differing, gradients_for, reference_gradients, tensors_of

from graphdiff import pipeline
from graphdiff.emit import emit_package, emit_region, extract_regions

FILE = emit_functions.__file__


def captured(name):
    return pipeline.function_capture(f"{FILE}:{name}", f"{FILE}:{name}_inputs", 0, compile=True)


@pytest.fixture(scope="module")
def cases():
    """name -> (program, region, emitted, files)"""
    found = {}
    for name in FITTING:
        program = captured(name).program
        regions, refused = extract_regions(program, TOKENS)
        assert not refused, refused
        (region,) = regions
        emitted = emit_region(region, namespace=f"test_{name}")
        found[name] = program, region, emitted, emit_package([emitted])
    return found


@pytest.fixture(scope="module")
def forward(cases):
    """(function, kind of numbers) -> (outputs of the kernel, what the program stores)."""
    calls, wanted = [], []
    for name, (program, region, emitted, _) in cases.items():
        for kind in NUMBERS:
            tensors, pins = tensors_of(region, program, kind)
            calls.append(Call(f"package_{name}", emitted.name, arguments_of(emitted, tensors)))
            wanted.append(by_program(region, program, pins))
    answers = run_in_interpreter({f"package_{n}": c[3] for n, c in cases.items()}, calls)
    keys = [(n, k) for n in cases for k in NUMBERS]
    return {key: (a.outputs, w) for key, a, w in zip(keys, answers, wanted)}


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("name", FITTING)
def test_kernel_has_the_programs_bits(forward, name, kind):
    outputs, wanted = forward[name, kind]
    assert [differing(o, w) for o, w in zip(outputs, wanted)] == [0] * len(wanted)


@pytest.fixture(scope="module")
def backward(cases, tmp_path_factory):
    calls = {}
    for name, (program, region, emitted, _) in cases.items():
        inputs = arguments_of(emitted, tensors_of(region, program, "random", seed=1)[0])
        calls[name] = Call(f"package_{name}", emitted.name, inputs, gradients_for(emitted, inputs))
    answers = run_in_interpreter({f"package_{n}": c[3] for n, c in cases.items()}, list(calls.values()))
    folder = tmp_path_factory.mktemp("plain")
    plain = {n: call(load_package(cases[n][3], folder, f"plain_{n}"), c) for n, c in calls.items()}
    return calls, dict(zip(calls, answers)), plain


@pytest.mark.parametrize("path", ["kernel", "plain torch"])
@pytest.mark.parametrize("name", FITTING)
def test_gradients_are_those_of_the_fp64_reference(cases, backward, name, path):
    calls, kernel, plain = backward
    _, region, emitted, _ = cases[name]
    wanted = reference_gradients(region, emitted, calls[name].inputs, calls[name].gradients)
    made = (kernel if path == "kernel" else plain)[name].gradients
    for tensor, got, want in zip(emitted.signature.inputs, made, wanted):
        if not tensor.differentiable:
            assert got is None
            continue
        # one rounding, at the boundary, of a value with FP32 noise
        unit = torch.finfo(got.dtype).eps
        error = (got.double() - want).abs()
        assert (error <= want.abs() * unit * 0.51 + want.abs().max() * 2e-6).all(), (tensor.name, error.max(), want.abs().max())


def test_equal_input_gives_equal_bytes(cases):
    for program, _, _, files in cases.values():
        (again,), _ = extract_regions(program, TOKENS)
        assert {p: t for p, t in emit_package([emit_region(again, namespace=_namespace(files))]).items()} == files


def _namespace(files):
    text = "".join(files.values())
    return text.split('custom_op("')[1].split("::")[0]


def test_what_does_not_fit_is_refused_with_a_reason():
    regions, refused = extract_regions(captured("causal_sum").program, TOKENS)
    assert not regions
    assert refused and all("cumsum" in r.reason or "lane" in r.reason for r in refused), refused


def test_a_gate_that_overflows_has_a_finite_gradient(cases, tmp_path):
    _, _, emitted, files = cases["swiglu_merged_float16"]
    package = load_package(files, tmp_path, "overflowing")
    gate = torch.tensor([[-400.0, -100.0, -89.0, 0.0, 89.0, 300.0] + [0.0] * 250], dtype=torch.float16, requires_grad=True)
    up = torch.ones_like(gate, requires_grad=True)
    package.swiglu(gate, up).sum().backward()
    assert torch.isfinite(gate.grad).all() and torch.isfinite(up.grad).all()
    assert gate.grad[0, :3].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", FITTING)
def test_files_are_plain_readable_python(cases, name):
    for path, text in cases[name][3].items():
        compile(text, path, "exec")
        assert "import graphdiff" not in text
        assert max(map(len, text.splitlines())) <= 120, Path(path).name
