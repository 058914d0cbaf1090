"""Tiny Qwen3 as vLLM compiles it: emitted kernels, the engine's own kernels and the program have the same bits."""

import pytest
from emitted import Call, run_in_interpreter
from engine_kernels import by_engine, launches_of
from regions import NUMBERS, arguments_of, by_program, differing, tensors_of
from tiny_engine import tiny_qwen3

from graphdiff.emit import emit_package, emit_region, extract_regions
from graphdiff.lower.inductor import program_from_pieces

TOKENS = 8
NAMES = ["rms_norm", "qk_norm_rope", "post_attention_layernorm", "swiglu", "input_layernorm", "qk_norm_rope",
         "post_attention_layernorm", "swiglu", "final_norm"]


@pytest.fixture(scope="module", params=["base", "combo"])
def compared(request):
    """[(name, kind, emitted against program, emitted against engine)] over all regions and kinds of numbers."""
    (program, _), seen = launches_of(lambda: program_from_pieces(tiny_qwen3(request.param)))
    regions, refused = extract_regions(program, TOKENS)
    assert not refused
    assert [r.name for r in regions] == NAMES
    emitted = [emit_region(r, namespace=f"test_{request.param}") for r in regions]
    calls, cases, wanted, keys = [], [], [], []
    for region, e in zip(regions, emitted):
        for kind in NUMBERS:
            tensors, pins = tensors_of(region, program, kind)
            calls.append(Call("package", e.name, arguments_of(e, tensors)))
            cases.append((region, pins))
            wanted.append(by_program(region, program, pins))
            keys.append((e.name, kind))
    answers = run_in_interpreter({"package": emit_package(emitted)}, calls)
    engine = by_engine(program, cases, seen)
    return [(*key, [differing(o, w) for o, w in zip(a.outputs, want)], None if theirs is None else [differing(o, t) for o, t in zip(a.outputs, theirs)])
            for key, a, want, theirs in zip(keys, answers, wanted, engine)]


def test_the_programs_bits(compared):
    assert [c[:3] for c in compared if any(c[2])] == []


def test_the_bits_of_the_engines_kernels(compared):
    assert len(compared) == len(NAMES) * len(NUMBERS)
    assert [c for c in compared if c[3] is None or any(c[3])] == []
