"""Every case through the whole comparison, in process: the count of moved roundings per side, the mode, the witness.

`public/` are cases written after public reports, `more/` are ours; what each EXPECT says of `more/` is proven on real
bits first (`check_expect.py`), so a failing count is a fault of the comparison, not of the case.
"""

import json
import pathlib
import warnings

import check_expect
import pytest

torch = pytest.importorskip("torch")

HERE = pathlib.Path(__file__).parent
FILES = [f for folder in ("public", "more") for f in sorted((HERE / folder).glob("[0-9]*.py"))]
IDS = [f"{f.parent.name}-{f.stem}" for f in FILES]

# Another partial sum is rounded on each side: no schedule makes one side's skeleton the other's.
OTHER_SKELETON = {"29_three_term_add_order"}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("path", [f for f in FILES if f.parent.name == "more"], ids=lambda f: f.stem)
def test_expectation_is_true(path):
    with torch.no_grad():
        wrong, words = check_expect.check(path)
    assert not wrong, words


@pytest.fixture(scope="module")
def reports():
    """One comparison per case, kept: the tests below look at the same report."""
    from graphdiff import pipeline
    kept = {}

    def report(path):
        if path not in kept:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                kept[path] = pipeline.compare(
                    f"{path}:inference",
                    f"{path}:training",
                    inputs=f"{path}:inputs",
                    seed=0,
                    options=pipeline.CompareOptions(),
                )
        return kept[path]

    return report


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_moved_roundings(path, reports):
    expect, report = check_expect.load(path).EXPECT, reports(path)
    moved = (report.summary.moved.training, report.summary.moved.inference)
    wanted = (len(expect.get("moved_training_only", [])), len(expect.get("moved_inference_only", [])))
    said = [(m.rounded_in, m.value, m.dtype) for r in report.regions for m in r.moved]
    if expect["verdict"] == "rounding_mode":
        words = [report.verdict, report.notes, [[m.mode, m.mechanism] for r in report.regions for m in r.moved]]
        assert "mode" in json.dumps(words).lower() and report.exit_status == 1, (moved, said, report.notes)
        assert moved == (0, 0), f"no rounding moved, but {said}"
        return
    unmatched = [(u.side, u.op, u.node) for u in report.unmatched]
    assert moved == wanted, f"(training, inference) {moved}, EXPECT {wanted}: {said}; unmatched {unmatched}"
    assert report.exit_status == (1 if any(wanted) else 0), (report.verdict, report.exit_status)


POSITIVE = [
    (file, name)
    for file, name in zip(FILES, IDS, strict=True)
    if check_expect.load(file).EXPECT["verdict"] == "moved"
    and file.stem not in OTHER_SKELETON
    and not check_expect.load(file).EXPECT.get("other_skeleton")
]


def proven(report, expect):
    """Every region bit for bit, but for what the order of a matmul's sums leaves."""
    assert report.regions, "a positive with no region"
    for region in report.regions:
        w = region.witness
        if expect.get("slack") and w.after is not None:
            assert w.after.differing <= check_expect.SLACK * w.after.elements, f"{region.name}: {w.after}"
        else:
            assert w.transplant_bitwise is True, f"{region.name}: {w}"


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_mirrored(path):
    """With the sides exchanged the counts are exchanged, and what only inference rounds is proved as well."""
    from graphdiff import pipeline

    expect = check_expect.load(path).EXPECT
    report = pipeline.compare(
        f"{path}:training", f"{path}:inference", inputs=f"{path}:inputs", options=pipeline.CompareOptions()
    )
    moved = (report.summary.moved.inference, report.summary.moved.training)
    assert moved == (len(expect.get("moved_training_only", [])), len(expect.get("moved_inference_only", [])))
    if path in dict(POSITIVE):
        proven(report, expect)


@pytest.mark.parametrize("path", [f for f, _ in POSITIVE], ids=[i for _, i in POSITIVE])
def test_witness_is_bitwise(path, reports):
    proven(reports(path), check_expect.load(path).EXPECT)
