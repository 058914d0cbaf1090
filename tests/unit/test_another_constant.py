"""Roundings behind another constant: both sides round in the same place, other numbers. Nothing moved, and not one computation."""

import pytest

pytest.importorskip("torch")

from graphdiff import pipeline  # noqa: E402

CODE = """
import torch
bf = torch.bfloat16
def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(6, 64, generator=g).to(bf), torch.randn(64, generator=g).to(bf)
def norm(x, w, eps, rounded):
    h = x.float()
    return w * rounded(h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps))
def eps_5(x, w):
    return norm(x, w, 1e-5, lambda t: t.to(bf))
def eps_6(x, w):
    return norm(x, w, 1e-6, lambda t: t.to(bf))
def eps_6_wide(x, w):
    return norm(x, w, 1e-6, lambda t: t).to(bf)
def eps_6_and_more(x, w):
    return norm(x, w, 1e-6, lambda t: t.to(bf)), (x * w) * 1.7
def eps_5_and_more(x, w):
    return norm(x, w, 1e-5, lambda t: t.to(bf)), (x.float() * w * 1.7).to(bf)
def deep_5(x, w):
    return norm(norm(x, w, 1e-5, lambda t: t.to(bf)), w, 1e-5, lambda t: t.to(bf))
def deep_6(x, w):
    return norm(norm(x, w, 1e-6, lambda t: t.to(bf)), w, 1e-6, lambda t: t.to(bf))
def one_order(x, w):
    return ((x * 1.1).float() * w).to(bf) * 1.3
def other_order(x, w):
    return ((x * 1.3).float() * w).to(bf) * 1.1
def exp_of_it(x, w):
    return torch.exp(x * 1.1) * w, torch.sqrt(w.abs())
def tanh_of_it(x, w):
    return torch.tanh(x * 1.2) * w, torch.sqrt(w.abs())
"""


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    file = tmp_path_factory.mktemp("functions") / "functions.py"
    file.write_text(CODE)

    def compare(inference, training):
        return pipeline.compare_captures(*(pipeline.function_capture(f"{file}:{name}", f"{file}:inputs", 0) for name in (inference, training)))

    return compare


@pytest.mark.parametrize(("one", "two", "reads"), [("eps_5", "eps_6", 1), ("eps_6", "eps_5", 1), ("deep_5", "deep_6", 5), ("deep_6", "deep_5", 5)])
def test_the_same_place_with_another_eps_is_not_moved(compared, one, two, reads):
    report = compared(one, two)
    assert not report.regions and (report.verdict, report.exit_status) == ("could not tell", 2)
    notes = [n for n in report.notes if "in the same place: not moved" in n]
    assert [n.split()[0] for n in notes] == [str(reads)] * 2 and [n.split()[4] for n in notes] == ["training", "inference"]


def test_what_only_one_side_rounds_is_moved_whatever_the_eps(compared):
    report = compared("eps_6_wide", "eps_5")
    assert (report.summary.moved.training, report.summary.moved.inference) == (1, 0)
    report = compared("eps_5", "eps_6_wide")
    assert (report.summary.moved.training, report.summary.moved.inference) == (0, 1)


def test_what_moved_beside_it_is_found(compared):
    report = compared("eps_5_and_more", "eps_6_and_more")
    assert [m.training.text for r in report.regions for m in r.moved] == ["x * w"] and report.verdict == "moved"


def test_constants_in_another_order_round_other_values_of_one_computation(compared):
    report = compared("one_order", "other_order")
    assert all(o.same for o in report.outputs)
    assert (report.summary.moved.training, report.summary.moved.inference) == (2, 2)


def test_other_ops_on_one_value_are_no_counterparts(compared):
    report = compared("exp_of_it", "tanh_of_it")
    assert {m.training.text for r in report.regions for m in r.moved if m.rounded_in == "training"} == {"x * 1.2", "torch.tanh(x * 1.2)"}
