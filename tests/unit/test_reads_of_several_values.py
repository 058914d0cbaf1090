"""A read of several values (cat, stack, where, slices written): each that lacks a rounding is named, counted and proved."""

import pytest

torch = pytest.importorskip("torch")

from graphdiff import pipeline  # noqa: E402

CODE = """
import torch
bf = torch.bfloat16
def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(6, 16, generator=g).to(bf), torch.randn(16, generator=g).to(bf)
def many(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(4096, 64, generator=g).to(bf), torch.randn(64, generator=g).to(bf)
def some(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(300, 16, generator=g).to(bf), torch.randn(16, generator=g).to(bf)
def cat(x, w):
    return torch.cat((x * w, torch.exp(x))) * 1.7
def cat_wide(x, w):
    return (torch.cat((x.float() * w.float(), torch.exp(x.float()))) * 1.7).to(bf)
def cat_rounds_exp(x, w):
    return (torch.cat((x.float() * w.float(), torch.exp(x).float())) * 1.7).to(bf)
def cat_multiplied_twice(x, w):
    return torch.cat((x * w, torch.exp(x))) * 1.7 * w
def cat_of_multiples(x, w):
    w = 1.7 * w.float()
    return torch.cat((x.float() * (w * w), torch.exp(x.float()) * w)).to(bf)
def stack(x, w):
    return torch.stack((x.float() * w.float(), torch.exp(x).float()), 1).sum(1).to(bf)
def stack_wide(x, w):
    return torch.stack((x.float() * w.float(), torch.exp(x.float())), 1).sum(1).to(bf)
def chosen(x, w):
    return torch.where(x > 0, x * w, torch.exp(x)) * 1.7
def chosen_wide(x, w):
    return (torch.where(x > 0, x.float() * w, torch.exp(x.float())) * 1.7).to(bf)
def written(x, w):
    y = torch.empty(6, 16, dtype=bf)
    y[:3] = torch.exp(x[:3])
    y[3:] = torch.tanh(x[3:] * w)
    return y * 1.7
def written_wide(x, w):
    y = torch.empty(6, 16)
    y[:3] = torch.exp(x[:3].float())
    y[3:] = torch.tanh(x[3:].float() * w)
    return (y * 1.7).to(bf)
def in_place(x, w):
    x = x.clone()
    x[:, 1:4] *= w[1:4]
    x[4] += 0.3
    return x * 1.7
def in_place_wide(x, w):
    y = x.float().clone()
    y[:, 1:4] *= w[1:4].float()
    y[4] += 0.3
    return (y * 1.7).to(bf)
def three_in_place(x, w):
    y = x * w
    y[4, :3] += 0.3
    return y * 1.7
def three_in_place_wide(x, w):
    y = x.float() * w
    y[4, :3] += 0.3
    return (y * 1.7).to(bf)
def heads(x, w):
    return torch.stack([x[:, h:h + 4] * w[h:h + 4] for h in range(0, 16, 4)]) * 1.7
def heads_wide(x, w):
    return (torch.stack([x[:, h:h + 4].float() * w[h:h + 4] for h in range(0, 16, 4)]) * 1.7).to(bf)
def halves(x, w):
    a = torch.exp(x[:, :8])
    b = torch.exp(x[:, 8:])
    return torch.cat((a, b), -1) * 1.7
def whole_wide(x, w):
    return (torch.exp(x.float()) * 1.7).to(bf)
def twice(x, w):
    return torch.cat((x * w, x * w)) * 1.7
def twice_wide(x, w):
    return (torch.cat((x.float() * w, x.float() * w)) * 1.7).to(bf)
def with_its_wide_copy(x, w):
    return (torch.cat((x.float() * w.float(), x * w)) * 1.7).to(bf)
def cat_returned(x, w):
    return torch.cat((x * w, torch.exp(x)))
def cat_returned_wide(x, w):
    return torch.cat((x.float() * w, torch.exp(x.float())))
"""
PIECES = """
def cat_of_{name}(x, w):
    x, w = x.float(), w.float()
    a = torch.sqrt(x.abs()){}
    b = (x / (w * w + 1)){}
    c = torch.tanh(x + w){}
    d = torch.sin(x * w){}
    y = torch.cat((-a.flip(0), b, c, d))
    return {result}
"""
for name, rounded in {"none": "", "b": "b", "ab": "ab", "abd": "abd", "c": "c"}.items():
    for kind, result in {"multiplied": "(y * 1.7).to(bf)", "returned": "y"}.items():
        CODE += PIECES.format(*(".to(bf).float()" if piece in rounded else "" for piece in "abcd"), name=f"{name}_{kind}", result=result)
LINES = CODE.splitlines()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    made = tmp_path_factory.mktemp("functions") / "functions.py"
    made.write_text(CODE)
    return made


def compared(file, inference: str, training: str, inputs: str = "inputs"):
    one, two = (pipeline.function_capture(f"{file}:{name}", f"{file}:{inputs}", 0) for name in (inference, training))
    return pipeline.compare_captures(one, two)


ROUNDED = {
    ("cat_wide", "cat"): ["torch.exp(x)", "x * w"],
    ("cat_wide", "cat_rounds_exp"): ["torch.exp(x)"],
    ("cat_rounds_exp", "cat"): ["x * w"],
    ("cat_of_multiples", "cat_multiplied_twice"): ["torch.cat((x * w, torch.exp(x))) * 1.7", "torch.exp(x)", "x * w"],
    ("stack_wide", "stack"): ["torch.exp(x)"],
    ("chosen_wide", "chosen"): ["torch.exp(x)", "x * w"],
    ("written_wide", "written"): ["torch.exp(x[:3])", "torch.tanh(x[3:] * w)", "x[3:] * w"],
    ("in_place_wide", "in_place"): ["x[4] += 0.3", "x[:, 1:4] *= w[1:4]"],
    ("heads_wide", "heads"): ["x[:, h:h + 4] * w[h:h + 4]"],
    ("whole_wide", "halves"): ["torch.exp(x[:, :8])"],
    ("twice_wide", "twice"): ["x * w"],
    ("twice_wide", "with_its_wide_copy"): ["x * w"],
    ("cat_returned_wide", "cat_returned"): ["torch.exp(x)", "x * w"],
}
"""What the second function rounds and the first does not, each on the line where it stands."""


@pytest.mark.parametrize("pair", ROUNDED, ids="-".join)
def test_each_piece_that_is_rounded_is_named_where_it_stands(file, pair):
    report = compared(file, *pair)
    moved = [m for r in report.regions for m in r.moved]
    assert sorted(m.training.text for m in moved) == ROUNDED[pair]
    assert (report.summary.moved.training, report.summary.moved.inference) == (len(ROUNDED[pair]), 0)
    for m in moved:
        start = LINES.index(f"def {pair[1]}(x, w):")
        assert m.training.line > start and m.training.text in LINES[m.training.line - 1] and m.share == 1.0
        assert m.inference.kernel in ("", m.training.kernel)  # where the other side forms it, if it does
    assert all(r.witness.transplant_bitwise for r in report.regions) and report.whole_program.transplant_bitwise


@pytest.mark.parametrize("pair", [p for p in ROUNDED if p[1] != "with_its_wide_copy"], ids="-".join)
def test_the_same_is_found_from_the_other_side(file, pair):
    """But for a rounded copy beside an unrounded one: which of the two the other side's is cannot be told by numbers."""
    report = compared(file, *reversed(pair))
    assert sorted(m.inference.text for r in report.regions for m in r.moved) == ROUNDED[pair]
    assert report.summary.moved.training == 0
    assert all(r.witness.transplant_bitwise for r in report.regions) and report.whole_program.transplant_bitwise


def test_a_piece_too_small_to_be_sampled_is_found_and_proved(file):
    report = compared(file, "three_in_place_wide", "three_in_place", "many")
    assert sorted(m.training.text for r in report.regions for m in r.moved) == ["x * w", "y[4, :3] += 0.3"]
    assert report.whole_program.transplant_bitwise


@pytest.mark.parametrize("kind", ["multiplied", "returned"])
@pytest.mark.parametrize("inputs", ["inputs", "some"])
@pytest.mark.parametrize(("one", "two"), [("b", "ab"), ("b", "abd"), ("ab", "abd"), ("c", "ab"), ("none", "abd"), ("c", "c")])
def test_pieces_that_both_sides_round_hide_no_others(file, one, two, inputs, kind):
    """A read whose rounded piece is rounded there too is found beside it, though most of either read is of other values."""
    report = compared(file, f"cat_of_{one}_{kind}", f"cat_of_{two}_{kind}", inputs)
    moved = {"inference": set(), "training": set()}
    for m in (m for r in report.regions for m in r.moved):
        moved[m.rounded_in].add(LINES[m.formed.line - 1].split()[0])
    assert moved == {"inference": set(one) - set(two) - set("none"), "training": set(two) - set(one)}
    assert sum(len(names) for names in moved.values()) == report.summary.moved.inference + report.summary.moved.training
    assert all(r.witness.transplant_bitwise for r in report.regions) and report.whole_program.transplant_bitwise
