"""What a patch aligns is read off the comparison: values that did not move keep their roundings; the rest has a reason."""

import copy
import importlib
import sys

import msgspec
import pytest
from patch_models import CAPTURES

from graphdiff import pipeline
from graphdiff.errors import GraphdiffError
from graphdiff.patch import kernels_for, plan_patch, write_package
from graphdiff.patch.recipe import load_recipes
from graphdiff.patch.source import NoFit, edited, modeling_module, read_source
from graphdiff.store import read_capture


@pytest.fixture(scope="module")
def captures():
    return tuple(read_capture(c) for c in CAPTURES)


@pytest.fixture(scope="module")
def report(captures):
    return pipeline.compare_captures(*captures)


def without(report, keep):
    """The report less the moved values that `keep(value, module)` is false for."""
    less = copy.deepcopy(report)
    for region in less.regions:
        region.moved = [m for m in region.moved if keep(m.value, m.module)]
    less.regions = [r for r in less.regions if r.moved]
    return less


def test_every_part_and_value(report, captures):
    plan = plan_patch(report, captures[1].header)
    assert [p.part.name for p in plan.parts] == ["rope", "swiglu", "residual_rmsnorm"]
    assert {flag for p in plan.parts for flag, rounded in p.schedule.items() if rounded} == {"stream"}  # stored on both sides
    assert plan.uncovered == [] and plan.absent == {}


def test_a_part_that_did_not_move_is_not_written(report, captures):
    plan = plan_patch(without(report, lambda value, module: value != "silu(gate)"), captures[1].header)
    assert [p.part.name for p in plan.parts] == ["rope", "residual_rmsnorm"]
    assert plan.absent == {"swiglu": "no value of it is rounded differently"}


def test_a_value_that_did_not_move_stays_rounded(report, captures, tmp_path):
    """An engine that rounds the norm's output before rotating: the products are aligned, the norm stays."""
    plan = plan_patch(without(report, lambda value, module: not module.endswith(("q_norm", "k_norm"))), captures[1].header)
    rope = plan.parts[0]
    assert {f for f, rounded in rope.schedule.items() if rounded} == {"q_xhat", "q_weighted", "k_xhat", "k_weighted"}
    assert rope.values() == {"layer": 4, "model": 0}
    write_package(plan, tmp_path / "part_patch", report, tuple(c.header for c in captures), ("", ""))
    plain = (tmp_path / "part_patch" / "plain.py").read_text()
    assert "x = _rounded(_normed(x.float(), eps), dtype)" in plain and "x = _rounded(weight.float() * x, dtype)" in plain
    assert "return (x * cos.float() + _rotate_half(x) * sin.float()).to(dtype)" in plain
    compile(plain, "plain.py", "exec")


def test_an_inner_sum_that_is_rounded_is_carried_as_one_tensor(report, captures, tmp_path):
    """vLLM's fused_add_rms_norm op: the norm reads the unrounded sum, the next addition the stored one."""
    less = copy.deepcopy(report)
    for m in [m for r in less.regions for m in r.moved if "residual + hidden_states" in m.read_by]:
        m.read_by.remove("residual + hidden_states")
    plan = plan_patch(less, captures[1].header)
    assert plan.parts[2].schedule["inner"] and not plan.parts[2].schedule["post_sum"]
    write_package(plan, tmp_path / "stored_patch", report, tuple(c.header for c in captures), ("", ""))
    assert "return flowing[-2:]" in (tmp_path / "stored_patch" / "plain.py").read_text()


def test_the_stored_sum_trains_and_shows_its_stream(report, captures, tmp_path, monkeypatch, model):
    import torch
    from patch_models import loss_of, tokens

    less = copy.deepcopy(report)
    for m in [m for r in less.regions for m in r.moved if "residual + hidden_states" in m.read_by]:
        m.read_by.remove("residual + hidden_states")
    write_package(plan_patch(less, captures[1].header), tmp_path / "two_addends", report, tuple(c.header for c in captures), ("", ""))
    monkeypatch.syspath_prepend(tmp_path)
    package = importlib.import_module("two_addends")
    with package.apply(model, residual_rmsnorm=True):
        loss_of(model, tokens()).backward()
        hidden = model(input_ids=tokens(), output_hidden_states=True).hidden_states
    assert len(hidden) == 3 and hidden[1].dtype == torch.bfloat16
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"share": 0.5}, "only 50.0 % of the elements"),
        ({"read_by": ["hidden_states.pow(2)"]}, "is moved only as `hidden_states.pow(2)` reads it"),
        ({"module": "model.layers.*.other"}, "recipe pre-norm-decoder has no value"),
        ({"instances": 1}, "the layers differ"),
    ],
)
def test_what_cannot_be_aligned_has_a_reason(report, captures, change, reason):
    less = copy.deepcopy(report)
    target = next(m for r in less.regions for m in r.moved if "residual + hidden_states" in m.read_by)
    for key, value in change.items():
        setattr(target, key, value)
    plan = plan_patch(less, captures[1].header)
    assert any(reason in u.reason for u in plan.uncovered), plan.uncovered


def test_a_longer_expression_that_begins_in_the_same_place_is_another_value(report, captures):
    """silu(gate) * up begins where silu(gate) does."""
    less = copy.deepcopy(report)
    region = next(r for r in less.regions if r.rule == "gated-activation")
    product = copy.deepcopy(region.moved[0])
    product.value, product.formed.end_column = "silu(gate) * up", product.formed.end_column + 18
    region.moved.append(product)
    plan = plan_patch(less, captures[1].header)
    assert [p.part.name for p in plan.parts] == ["rope", "swiglu", "residual_rmsnorm"]
    assert [u.values for u in plan.uncovered] == [["silu(gate) * up"]]


def test_another_transformers_than_the_captured_one_is_an_error(report, captures):
    header = msgspec.structs.replace(captures[1].header, versions={"transformers": "5.16.0"})
    with pytest.raises(GraphdiffError, match="captured with transformers 5.16.0"):
        plan_patch(report, header)


def test_a_model_without_recipe_gets_kernels_and_a_reason(report, captures, tmp_path, monkeypatch):
    header = captures[1].header
    model = msgspec.structs.replace(header.model, config={**header.model.config, "model_type": "mamba"})
    plan = plan_patch(report, msgspec.structs.replace(header, model=model))
    assert plan.parts == [] and {u.reason for u in plan.uncovered} == {"no recipe says where to cut into transformers' mamba"}
    assert sum(len(u.values) for u in plan.uncovered) == report.summary.moved.training
    kernels = kernels_for(captures[0], [], "only_kernels", everything=True)
    write_package(plan, tmp_path / "only_kernels", report, tuple(c.header for c in captures), ("", ""), kernels)
    assert "where to cut into transformers' mamba" in (tmp_path / "only_kernels" / "README.md").read_text()
    monkeypatch.syspath_prepend(tmp_path)
    package = importlib.import_module("only_kernels")
    assert {"swiglu", "qk_norm_rope", "input_layernorm", "post_attention_layernorm", "final_norm", "rms_norm"} <= set(package.kernels.__all__)
    with pytest.raises(GraphdiffError, match="kernels alone"):
        pipeline.verify(tmp_path / "only_kernels", "qwen3-tiny")


def test_nothing_moved_is_an_error(captures):
    same = pipeline.compare_captures(captures[1], captures[1])
    with pytest.raises(GraphdiffError, match="nothing is rounded differently"):
        plan_patch(same, captures[1].header)


@pytest.mark.parametrize(("model_type", "prefix"), [(t, p) for r in load_recipes() for t, p in r.models.items()])
def test_one_recipe_fits_the_installed_source_of_the_whole_family(model_type, prefix):
    source = read_source(modeling_module(model_type))
    for part in load_recipes()[0].parts:
        fitting = []
        for variant in part.variants:
            try:
                texts = [edited(source, f, f.function.replace("$", prefix)) for f in variant.functions]
            except NoFit:
                continue
            fitting.append(variant.name)
            for text in texts:
                compile(text, model_type, "exec")
        assert len(fitting) == 1, (part.name, fitting)


def test_equal_captures_give_equal_packages(folder, tmp_path):
    again = tmp_path / folder.name
    pipeline.patch(*CAPTURES, again)
    names = sorted(str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file() and "__pycache__" not in f.parts)
    assert names == sorted(str(f.relative_to(again)) for f in again.rglob("*") if f.is_file())
    assert all((folder / n).read_bytes() == (again / n).read_bytes() for n in names)


def test_the_report_may_be_given(report, tmp_path):
    from graphdiff.report.model import encode

    file = tmp_path / "report.json"
    file.write_bytes(encode(report))
    plan, _ = pipeline.patch(*CAPTURES, tmp_path / "from_report", report=file)
    assert len(plan.parts) == 3


# ---- the command
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["patch", str(CAPTURES[0]), "-o", "x"], "1 captures given"),
        (["patch", str(CAPTURES[1]), str(CAPTURES[0]), "-o", "some_patch"], "the training side is a capture of a vllm"),
        (["patch", *map(str, CAPTURES), "-o", "not-a-name"], "this is no name for one"),
        (["verify", "nowhere", "--model", "qwen3-tiny"], "this folder is no patch"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(arguments, line, capsys, tmp_path, monkeypatch):
    from graphdiff.cli.main import main

    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert line in error and len(error.splitlines()) == 1


def test_a_folder_with_something_else_is_not_overwritten(tmp_path, capsys):
    from graphdiff.cli.main import main

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert main(["patch", *map(str, CAPTURES), "-o", str(tmp_path / "mine")]) == 2
    assert "this exists and is no patch" in capsys.readouterr().err
    assert [f.name for f in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_the_command_writes_and_says_what(tmp_path, capsys):
    from graphdiff.cli.main import main

    assert main(["patch", *map(str, CAPTURES), "-o", str(tmp_path / "written")]) == 0
    out = capsys.readouterr().out
    assert "residual_rmsnorm" in out and "graphdiff verify" in out
    assert "_written" not in sys.modules
