"""--inductor NAME=VALUE: read strictly, refused in words, written into the capture and said by reports."""

import pytest

from graphdiff import pipeline
from graphdiff.capture.inductor.options import FIXED, in_force, options_for, options_from
from graphdiff.cli.main import main
from graphdiff.errors import GraphdiffError
from graphdiff.report import decode

pytest.importorskip("torch")
pytest.importorskip("triton")

SOURCE = """
import torch
import torch.nn.functional as F

def silu(gate, up):
    return F.silu(gate) * up

def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(8, 256, generator=generator).bfloat16() for _ in range(2))
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "f.py"
    path.write_text(SOURCE)
    return path


@pytest.mark.parametrize(("given", "values"), [
    ([], {}),
    (["emulate_precision_casts=true"], {"emulate_precision_casts": True}),
    (["emulate_precision_casts=False", "realize_reads_threshold=8"], {"emulate_precision_casts": False, "realize_reads_threshold": 8}),
    (["triton.persistent_reductions=false"], {"triton.persistent_reductions": False}),
    (["triton.max_tiles=3"], {"triton.max_tiles": 3}),
    (["triton.max_tiles=none"], {"triton.max_tiles": None}),
    (["max_autotune_gemm_backends=ATEN,TRITON"], {"max_autotune_gemm_backends": "ATEN,TRITON"}),
    (["pattern_matcher=true", "pattern_matcher=true"], {"pattern_matcher": True}),
])
def test_what_is_read(given, values):
    found = options_from(given)
    assert found == values and [type(v) for v in found.values()] == [type(v) for v in values.values()]


@pytest.mark.parametrize(("given", "says"), [
    (["emulate_precision_cast=true"], "no option 'emulate_precision_cast' (--inductor): did you mean emulate_precision_casts or"),
    (["persistent_reduction=true"], "did you mean triton.persistent_reductions"),
    (["max_tiles=3"], "did you mean triton.max_tiles"),
    (["xyzzy=true"], "no option 'xyzzy' (--inductor): torch._inductor.list_options() names them"),
    (["emulate_precision_casts"], "'emulate_precision_casts' is not NAME=VALUE"),
    (["=true"], "'=true' is not NAME=VALUE"),
    (["emulate_precision_casts=yes"], "emulate_precision_casts is true or false, not 'yes'"),
    (["emulate_precision_casts=1"], "emulate_precision_casts is true or false, not '1'"),
    (["emulate_precision_casts="], "emulate_precision_casts is true or false, not ''"),
    (["realize_reads_threshold=4.5"], "realize_reads_threshold is an integer, not '4.5'"),
    (["realize_reads_threshold=none"], "realize_reads_threshold is an integer, not 'none'"),
    (["triton.max_tiles=true"], "triton.max_tiles is an integer or none, not 'true'"),
    (["post_grad_custom_pre_pass=f"], "post_grad_custom_pre_pass takes no plain value"),
    (["pattern_matcher=true", "pattern_matcher=false"], "two values for pattern_matcher"),
    *((f"{name}=true".split(","), f"{name} cannot be set for a capture (--inductor): leave it out; ") for name in FIXED),
])
def test_what_is_refused(given, says):
    with pytest.raises(GraphdiffError) as caught:
        options_from(given)
    assert says in str(caught.value)


def test_what_the_capture_fixes_is_refused_and_exists():
    from graphdiff.capture.inductor.torch_2_13 import NO_TIMING
    from graphdiff.capture.inductor.versions import backend

    assert set(NO_TIMING) <= set(FIXED)
    assert set(FIXED) - {"force_disable_caches"} <= set(backend().option_types())  # that one torch does not list


def test_eager_code_has_none():
    assert options_for(False, ()) == {}
    with pytest.raises(GraphdiffError, match="eager code has no options"):
        options_for(False, ["emulate_precision_casts=true"])


def test_what_others_set_is_said_if_it_decides_where_code_rounds():
    import torch._inductor.config as config

    assert in_force({}) == {}
    assert in_force({"pattern_matcher": True}) == {"pattern_matcher": True}  # given, at its default or not
    with config.patch(emulate_precision_casts=True, epilogue_fusion=False):
        assert in_force({}) == {"emulate_precision_casts": True}
        assert in_force({"emulate_precision_casts": False}) == {"emulate_precision_casts": False}


@pytest.mark.parametrize("more", [["--target", "cuda:90"], ["--target", "cuda:90", "--training"], ["--target", "native"]], ids=lambda more: " ".join(more[1:]))
def test_a_capture_compiled_with_it_says_so_and_rounds_as_eager(more, file, tmp_path, capsys):
    of, on, off, eager = ("f.py:silu", *(str(tmp_path / name) for name in ("on.capture", "off.capture", "eager.capture")))
    given = ["capture", "function", str(file).replace("f.py", of), "--inputs", f"{file}:inputs"]
    assert main([*given, "--compile", *more, "--inductor", "emulate_precision_casts=true", "-o", on]) == 0
    assert main([*given, "--compile", *more, "-o", off]) == 0
    assert main([*given, "-o", eager]) == 0
    moved = {}
    for name in (on, off):
        main(["compare", name, eager, "--format", "json", "-o", str(tmp_path / "r.json")])
        report = decode((tmp_path / "r.json").read_bytes())
        moved[name] = (report.summary.moved.training, report.summary.moved.inference)
        assert (report.inference.inductor, report.training.inductor) == ({"emulate_precision_casts": True} if name == on else {}, {})
    assert moved == {on: (0, 0), off: (1, 0)}
    assert pipeline.show(on)["capture"]["inductor options"] == {"emulate_precision_casts": True}
    capsys.readouterr()
    for format in ("terminal", "markdown", "html"):
        main(["compare", on, off, "--format", format])
        text = " ".join(capsys.readouterr().out.split()).replace("\\", "")
        assert text.count("emulate_precision_casts=True") == 1, text[:500]


def test_forward_and_backward_compiled_with_it(file, tmp_path):
    on, off = tmp_path / "on.capture", tmp_path / "off.capture"
    for output, value in ((on, "true"), (off, "false")):
        pipeline.capture_function(f"{file}:silu", f"{file}:inputs", output, compile=True, backward=True,
                                  inductor=[f"emulate_precision_casts={value}"])
    report = pipeline.compare(str(on), str(off))
    assert (report.inference.inductor, report.training.inductor) == ({"emulate_precision_casts": True}, {"emulate_precision_casts": False})
    assert {(m.value, m.rounded_in) for r in report.regions for m in r.moved} == {("silu(gate)", "inference"), ("grad_output0 * up", "inference")}
    assert all(r.witness.transplant_bitwise is True for r in report.regions)


def test_a_switch_in_the_users_own_file_is_said(file, tmp_path):
    import torch._inductor.config as config

    path = tmp_path / "g.py"
    path.write_text(SOURCE + "\nimport torch._inductor.config\ntorch._inductor.config.emulate_precision_casts = True\n")
    before = config.emulate_precision_casts
    try:
        capture = pipeline.function_capture(f"{path}:silu", f"{path}:inputs", 0, compile=True)
    finally:
        config.emulate_precision_casts = before
    assert capture.header.inductor == {"emulate_precision_casts": True}
