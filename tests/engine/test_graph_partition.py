"""use_inductor_graph_partition: the whole model is one graph, attention inside it, and depth decides what a kernel sums.

Off (the default) every layer is a piece of its own, and the residual is rounded on its way into the next. On, it never
is: a norm sums the terms since the last buffer again, and where they become too many, the sum is kept in an FP32 buffer.
"""

import re

import pytest
from expected import assert_proven, found, moved, unfolded

from graphdiff import pipeline
from graphdiff.cli.main import main
from graphdiff.report import decode

pytestmark = pytest.mark.engine
pytest.importorskip("vllm")

ON = "VLLM_COMPILE, graph partition"

# Layers -> how many terms each norm but the first sums: the last outputs of o_proj and down_proj, and the embedding or a kept sum.
TERMS = {2: [2, 3, 4, 2], 4: [2, 3, 4, 2, 3, 4, 5, 2]}
NORM = re.compile(r"^def (triton_\w*add_rms_norm\w*)\(.*?\n(.*?)^\'\'\'", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("layers", [2, 4])
def test_the_same_values_move_against_training(captures, layers):
    report = captures.report(captures.engine("qwen3-tiny", layers=layers, partition=True), captures.training("qwen3-tiny", layers=layers))
    assert found(report) == moved("qwen3-tiny", layers) and unfolded(report, "inference") == 0
    assert report.summary.unmatched.inference == report.summary.unmatched.training == 0
    assert_proven(report)


@pytest.mark.parametrize("layers", [2, 4])
def test_off_against_on_the_residual_between_layers(captures, layers):
    off, on = (captures.engine("qwen3-tiny", layers=layers, partition=p) for p in (False, True))
    report = captures.report(off, on)
    (entry,) = (m for r in report.regions for m in r.moved)
    assert (entry.rounded_in, entry.value, entry.instances) == ("inference", "down + input", layers - 1)
    assert (report.inference.mode, report.training.mode) == ("VLLM_COMPILE", ON)
    assert_proven(report)


@pytest.mark.parametrize("layers", [2, 4])
def test_depth_decides_how_much_a_norm_sums(captures, layers):
    (piece,) = captures.raw("qwen3-tiny", layers=layers, partition=True).pieces.values()
    norms = NORM.findall(piece[0].code.text)
    assert [body.count("tl.load(") - 1 - ("embedding" in name) for name, body in norms] == TERMS[layers]
    assert "(256, 1), torch.float32)" in piece[0].code.text


def test_on_the_command_line(captures, tmp_path, capsys):
    """In a process of its own, in the schedule for one token, where coordinate descent is on as well."""
    files = {name: str(tmp_path / name) for name in ("on", "on1", "off1", "r.json")}
    assert main(["capture", "vllm", "qwen3-tiny", "--graph-partition", "-o", files["on"]]) == 0
    off = str(captures.engine("qwen3-tiny").path)
    assert main(["compare", off, files["on"], "--format", "json", "-o", files["r.json"]]) == 1
    report = decode((tmp_path / "r.json").read_bytes())
    assert (report.summary.moved.inference, report.summary.moved.training) == (1, 0)
    assert (report.inference.mode, report.training.mode) == ("VLLM_COMPILE", ON)
    assert pipeline.show(files["on"])["capture"]["mode"] == ON
    capsys.readouterr()
    for name, switch in (("on1", "--graph-partition"), ("off1", "--no-graph-partition")):
        assert main(["capture", "vllm", "qwen3-tiny", "--bucket", "1", switch, "-o", files[name]]) == 0
    assert main(["compare", files["off1"], files["on1"]]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "shapes: 1 token" in text and "VLLM_COMPILE · cuda:90" in text and f"{ON} · cuda:90" in text
    assert "0 values rounded in training only, 1 in inference only" in text
