"""SAME is said only of one computation: its outputs are the same numbers before any rounding, element by element."""

from __future__ import annotations

import msgspec
import pytest

pytest.importorskip("torch")

from pathlib import Path  # noqa: E402

from typer.testing import CliRunner  # noqa: E402

from graphdiff.cli.main import app  # noqa: E402
from graphdiff.errors import GraphdiffError  # noqa: E402
from graphdiff.findings.header import notes_of  # noqa: E402
from graphdiff.pipeline import compare_captures, function_capture  # noqa: E402
from graphdiff.report import decode, encode, render_text, words  # noqa: E402
from graphdiff.report.verdict import conclude  # noqa: E402

FILE = Path(__file__).parent.parent / "support" / "computations.py"


@pytest.fixture(scope="module")
def captured():
    kept = {}

    def capture(name):
        if name not in kept:
            kept[name] = function_capture(f"{FILE}:{name}", f"{FILE}:inputs", 0)
        return kept[name]

    return capture


@pytest.fixture
def compared(captured):
    return lambda one, two: compare_captures(captured(one), captured(two))


UNLIKE = [
    ("half", "quarter", "numbers"),
    ("rolled", "product", "order"),
    ("flipped", "product", "order"),
    ("transposed", "product", "order"),
    ("negated", "product", "numbers"),
    ("floored", "product", "numbers"),
    ("shifted", "product", "numbers"),
    ("dropped", "product", "numbers"),
    ("norm_eps", "norm", "numbers"),
    ("norm_eps_near", "norm", "numbers"),
    ("masked", "product", "numbers"),
    ("cut", "product", "shape"),
    ("relu", "identity", "numbers"),
    ("mostly_masked", "mostly_masked_half", "numbers"),
]


@pytest.mark.parametrize(("one", "two", "how"), [*UNLIKE, *((b, a, how) for a, b, how in UNLIKE)])
def test_another_computation_is_never_same(compared, one, two, how):
    report = compared(one, two)
    assert not report.regions and (report.verdict, report.exit_status) == ("could not tell", 2)
    (output,) = report.outputs
    assert (output.same, output.how) == (False, how)
    line = words.verdict(report)
    assert line.startswith("COULD NOT TELL: no rounding moved, but output 0 ") and line.endswith("exit status 2")
    assert report.advice and (report.whole_program.transplant_bitwise is not True or "eps" in one + two)
    for fail_on in ("moved", "unmatched", "never"):
        assert conclude(report, fail_on).exit_status == 2


def test_how_many_elements_differ(compared):
    report = compared("masked", "product")
    assert f"output 0 is another computation on each side ({report.outputs[0].differing} of 2048 elements differ" in words.verdict(report)
    assert 0.2 < report.outputs[0].differing / 2048 < 0.4
    # The bits are compared in place as well: what the mask takes away is no flipped choice.
    assert report.whole_program.differing == report.outputs[0].differing and report.whole_program.before.flips == 0
    assert "inference [8, 128], training [16, 128]" in words.verdict(compared("cut", "product"))


@pytest.mark.parametrize(("one", "two"), [
    ("product", "product"), ("product", "batched"), ("product", "master"), ("product", "dead_dropout"), ("norm", "norm_blocks"),
    ("both", "both_exchanged"), ("additive_mask", "masked_fill"), ("fused", "fused"),
])
def test_one_computation_spelled_twice_is_same(compared, one, two):
    for report in (compared(one, two), compared(two, one)):
        assert (report.verdict, report.exit_status) == ("same", 0)
        assert all(o.same for o in report.outputs) and report.whole_program.transplant_bitwise
        assert words.verdict(report) == "SAME: both sides round in the same places; exit status 0" and not words.outputs(report)


@pytest.mark.parametrize(("one", "two"), [("identity", "identity"), ("wide", "wide"), ("wide", "wide_fma"), ("wide_fma", "wide")])
def test_nothing_is_rounded_on_either_side(compared, one, two):
    report = compared(one, two)
    assert (report.verdict, report.exit_status) == ("same", 0)
    assert words.verdict(report) == "SAME: nothing is rounded on either side; exit status 0"
    assert (report.rounded.inference, report.rounded.training) == (0, 0)


@pytest.mark.parametrize(("one", "two"), [("identity", "product"), ("product", "identity"), ("identity", "norm"), ("norm", "relu")])
def test_nothing_matched_is_an_error(compared, one, two):
    with pytest.raises(GraphdiffError, match="different computations"):
        compared(one, two)


def test_another_output_beside_is_a_note(compared):
    for one, two, side in (("both", "product", "inference"), ("product", "both", "training")):
        report = compared(one, two)
        assert report.outputs[0].same and getattr(report.outputs[1], side) == 1
        assert any(note.startswith(f"{side} has 1 output that ") for note in report.notes)
    assert any("stand in another order" in note for note in compared("both", "both_exchanged").notes)


def test_moved_stays_moved_and_says_so(compared):
    plain, rolled = compared("fused", "eager"), compared("fused", "eager_rolled")
    assert plain.verdict == "moved" and not words.outputs(plain) and plain.outputs[0].same
    assert (rolled.verdict, rolled.exit_status, rolled.outputs[0].how) == ("moved", 1, "order")
    assert words.outputs(rolled) == ["output 0 holds the same numbers in another order on each side (2048 of 2048 elements differ)"]
    for format in ("terminal", "markdown", "html"):
        assert "in another order" in render_text(rolled, format, width=200), format
    assert decode(encode(rolled)) == rolled


def test_command_line_says_what_is_in_the_way():
    result = CliRunner().invoke(app, ["compare", f"{FILE}:half", f"{FILE}:quarter", "--inputs", f"{FILE}:inputs", "--fail-on", "never"])
    assert result.exit_code == 2
    assert "output 0 is another computation on each side" in result.stderr


def test_bits_that_differ_for_no_reason_are_no_all_clear(compared):
    report = compared("product", "product")
    report.outputs[0].same, report.outputs[0].how, report.outputs[0].differing = None, "bits", 100
    assert conclude(report).verdict == "could not tell" and report.exit_status == 2
    assert "bits of output 0 differ in 100 of 2048 elements for no reason that was found" in words.verdict(report)


def test_exchanged_operands_are_a_note(captured):
    def of(kind):
        capture = captured("product")
        return type(capture)(msgspec.structs.replace(capture.header, kind=kind), capture.program, capture.probe, capture.sources)

    assert "operands look exchanged" in notes_of(of("transformers"), of("vllm"))[0]
    for pair in (("vllm", "transformers"), ("vllm", "vllm"), ("transformers", "transformers"), ("function", "function")):
        assert not any("exchanged" in note for note in notes_of(*map(of, pair)))


def test_behind_an_op_that_cannot_be_read(compared):
    for one, two in (("opaque", "spelled"), ("spelled", "opaque")):
        report = compared(one, two)
        assert (report.verdict, report.outputs[0].same, report.outputs[0].how) == ("same", None, "opaque")
        assert any("behind an op that cannot be read" in note for note in report.notes)
    assert compared("opaque", "spelled_otherwise").verdict == "could not tell"
    # Nothing is rounded that can be seen; what cannot be read may round.
    report = compared("opaque", "opaque")
    assert report.verdict == "same" and report.rounded is None
