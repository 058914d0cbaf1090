"""Every renderer on the sample report, on an empty one, on a huge one and on a hostile one."""

import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sample_report import qwen3_report

from graphdiff.errors import GraphdiffError
from graphdiff.report import conclude, decode, encode, render_text, words
from graphdiff.report.markdown import LIMIT
from graphdiff.report.model import Bits, Count, Moved, Position, Probe, Region, Report, Side, Summary, Unmatched, Witness

HEAD_AT_80 = """\
inference     vllm 0.32.0 · qwen3-tiny · VLLM_COMPILE · cuda:90
training      transformers 5.19.0 · qwen3-tiny · eager · cpu
probe         8 tokens, seed 0; shapes: inference dynamic, training any
matched       97/97 inference, 97/141 training values; unmatched 0, 2; opaque 12
not captured  inference: the sampler; unlike production in 1 way (below)
MOVED: 15 values rounded in training only, 0 in inference only (365 over all
layers); exit status 1
whole program: 84.0 % of 512 outputs differ, 0.0 % with inference's roundings

#  region                               train  infer  changed  ulp  signs  proof
1  k norm and RoPE (28 layers)              4      0   41.3 %    2  mixed  yes
2  q norm and RoPE (28 layers)              4      0   41.2 %    3  mixed  yes
3  SwiGLU (28 layers)                       1      0   34.2 %    1  mixed  yes
"""

TABLE_AT_60 = """\
#  region                       train  infer  changed  proof
1  k norm and RoPE (28 layers)      4      0   41.3 %  yes
2  q norm and RoPE (28 layers)      4      0   41.2 %  yes
3  SwiGLU (28 layers)               1      0   34.2 %  yes
4  residual sum and RMSNorm         2      0   30.5 %  yes
   (27 layers)
"""

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=400)

HOSTILE = "\x1b[31mred\x1b]0;title\x07 <script>alert(1)</script> `tick` | @everyone [x](http://evil) \u202e\n# head"


def empty_report() -> Report:
    """Two sides that round alike."""
    same = Summary(values=Count(inference=3, training=3), matched=3, unmatched=Count(), regions=0, moved=Count())
    return conclude(
        Report(
            graphdiff="0.1.0",
            inference=Side(kind="function", model="f"),
            training=Side(kind="function", model="g"),
            summary=same,
        )
    )


def huge_report(regions: int) -> Report:
    """A report that no comment holds."""
    report = qwen3_report()
    report.regions = report.regions * (regions // len(report.regions))
    report.unmatched = report.unmatched * 5000
    return report


def hostile_report(hostile: str = HOSTILE) -> Report:
    """Every string of the capture tries something."""
    entry = Moved(
        value=hostile,
        rounded_in="training",
        dtype=hostile,
        inference=Position(kernel=hostile, node=hostile),
        training=Position(file=hostile, line=1, column=0, text=hostile),
        read_by=[hostile],
    )
    report = empty_report()
    report.inference = Side(kind=hostile, model=hostile, versions={hostile: hostile}, mode=hostile)
    report.regions = [
        Region(
            id=hostile,
            rule=hostile,
            modules=[hostile],
            kernels=[hostile],
            moved=[entry],
            witness=Witness(reason=hostile),
        )
    ]
    report.unmatched = [Unmatched(side="training", node=hostile, op=hostile, module=hostile)]
    report.notes = [hostile]
    return report


def test_terminal_decides_in_the_first_ten_lines():
    text = render_text(qwen3_report(), "terminal", width=80)
    assert text.startswith(HEAD_AT_80)


def test_terminal_at_60_columns_keeps_a_row_per_region():
    assert TABLE_AT_60 in render_text(qwen3_report(), "terminal", width=60)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_terminal_keeps_to_its_width(width):
    lines = render_text(qwen3_report(), "terminal", width=width).splitlines()
    commands = {"       graphdiff patch build/compare/report.json -o patch"}
    assert [line for line in lines if len(line) > width and line not in commands] == []


def test_terminal_in_a_pipe_has_no_escape_codes_and_on_a_terminal_has():
    assert "\x1b" not in render_text(qwen3_report(), "terminal")
    assert "\x1b[" in render_text(qwen3_report(), "terminal", color=True)


def test_terminal_answers_where_why_and_what_to_do():
    text = render_text(qwen3_report(), "terminal", width=100)
    assert "silu(gate)  bfloat16 in training only" in text
    assert "transformers/models/qwen3/modeling_qwen3.py:81:36" in text
    assert "kernel triton_poi_fused_mul_silu_5" in text
    assert "recomputed from inputs" in text
    assert "rotate_half(q) * sin  bfloat16 in training only for 50.0 % of its elements" in text
    assert "graphdiff patch build/compare/report.json -o patch" in text


def test_both_lines_are_said_where_a_cast_rounds_what_another_line_forms():
    text = " ".join(render_text(qwen3_report(), "terminal", width=100).split())
    both = "modeling_qwen3.py:63:30 hidden_states.to(input_dtype), formed at modeling_qwen3.py:62:25 hidden_states * torch.rsqrt(variance)"
    assert "rounded at transformers/models/qwen3/" + both in text
    assert both in " ".join(render_text(qwen3_report(), "html").split())
    assert "modeling_qwen3.py:160:16 q * cos" in text and "rounded at transformers/models/qwen3/modeling_qwen3.py:160" not in text


def test_how_often_a_value_stands_is_said_where_it_is_not_once_a_layer():
    report = qwen3_report()
    report.regions[5].moved[0].instances = 1
    for format in ("terminal", "markdown", "html"):
        assert render_text(report, format, width=120).count("in training only, in 1 of 27 layers") == 1
    assert report.regions[5].instances == 27


@pytest.mark.parametrize("format", ["terminal", "html", "markdown"])
def test_what_to_do_stands_between_the_table_and_the_details(format):
    text = render_text(qwen3_report(), format, width=100).replace("<strong>", "")
    order = ["whole program: 84.0 % of 512 outputs differ, 0.0 % with inference", "SwiGLU", "graphdiff patch build", "q * cos", "the sampler"]
    places = [text.index(words) for words in order[:4]] + [text.rindex(order[4])]
    assert places == sorted(places)


@pytest.mark.parametrize("width", [60, 100])
def test_the_legend_names_the_columns_that_are_shown_and_no_other(width):
    text = " ".join(render_text(qwen3_report(), "terminal", width=width).split())
    assert ("ulp: the largest" in text) is ("signs: whether" in text) is (width == 100)
    assert "train, infer: values rounded" in text
    html = render_text(qwen3_report(), "html")
    assert "training only, inference only: values rounded" in html and "train, infer" not in html


@pytest.mark.parametrize("format", ["terminal", "html", "markdown"])
def test_what_is_missing_is_called_the_same_everywhere(format):
    text = render_text(qwen3_report(), format, width=100).lower()
    assert "not captured" in text and "unlike production" in text and "not seen" not in text


def test_functions_have_inputs_and_no_tokens():
    report = empty_report()
    for side in (report.inference, report.training):
        side.probe, side.shapes = Probe(seed=3), "of the inputs"
    assert "inputs of seed 3; shapes: of the inputs" in render_text(report, "terminal")
    assert json.loads(render_text(report, "json"))["training"]["probe"] == {"tokens": 0, "seed": 3}


def test_nothing_moved_is_one_line_and_no_table():
    text = render_text(empty_report(), "terminal")
    assert "SAME: both sides round in the same places; exit status 0" in text
    assert "region  " not in text


def test_markdown_shows_five_rows_and_folds_the_rest():
    text = render_text(qwen3_report(), "markdown")
    before_folds = text.split("<details>")[0]
    assert before_folds.startswith("### graphdiff ❌ MOVED: 15 values")
    assert len(re.findall(r"^\| \d", before_folds, re.M)) == 5
    assert "regions 6 to 7 of 7" in text
    assert text.count("<details>") == text.count("</details>") >= 8


def test_markdown_is_cut_with_a_count_and_no_fold_left_open():
    text = render_text(huge_report(7000), "markdown")
    assert len(text.encode()) <= LIMIT
    assert re.search(r"\d+ more sections cut", text)
    assert text.count("<details>") == text.count("</details>")


def test_terminal_is_cut_with_a_count():
    text = render_text(huge_report(700), "terminal")
    assert "660 more regions: --format json has all" in text
    assert len(text.splitlines()) < 600


def test_json_has_the_keys_of_the_contract():
    data = json.loads(render_text(qwen3_report(), "json"))
    assert list(data)[:8] == [
        "schema",
        "graphdiff",
        "inference",
        "training",
        "summary",
        "regions",
        "unmatched",
        "notes",
    ]
    assert {"kind", "model", "versions", "mode", "target", "shapes", "probe"} <= set(data["inference"])
    assert data["summary"] == {
        "values": {"inference": 97, "training": 141},
        "matched": 97,
        "unmatched": {"inference": 0, "training": 2},
        "regions": 7,
        "moved": {"inference": 0, "training": 15},
    }
    region = data["regions"][0]
    assert {"id", "rule", "kind", "modules", "instances", "kernels", "moved", "witness"} <= set(region)
    assert {"transplant_bitwise", "elements", "differing", "max_ulp", "max_abs"} <= set(region["witness"])
    entry = region["moved"][0]
    assert {"value", "rounded_in", "dtype", "inference", "training", "formed"} <= set(entry)
    assert {"node", "kernel", "file", "line"} <= set(entry["inference"])
    assert {"node", "file", "line", "column", "end_column", "text"} <= set(entry["training"])


def test_json_round_trips_and_is_stable():
    report = qwen3_report()
    report.inference.versions = {"vllm": "0.32.0", "torch": "2.13.0+cpu"}
    assert decode(encode(report)) == report
    assert encode(decode(encode(report))) == encode(qwen3_report())


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"schema": 1}', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_report_is_refused_in_one_line(data):
    with pytest.raises(GraphdiffError, match="not a graphdiff report") as raised:
        decode(data, where="x.json")
    assert "x.json" in str(raised.value) and "\n" not in str(raised.value)


def test_another_schema_is_refused():
    with pytest.raises(GraphdiffError, match="schema 2"):
        decode(encode(qwen3_report()).replace(b'"schema": 1', b'"schema": 2'))


def test_infinite_numbers_become_null():
    report = qwen3_report()
    report.regions[0].witness = Witness.of(Bits(elements=2, differing=1, max_abs=float("inf"), nonfinite=1), None)
    witness = json.loads(encode(report))["regions"][0]["witness"]
    assert witness["max_abs"] is None and witness["before"]["nonfinite"] == 1
    assert decode(encode(report)).regions[0].witness.transplant_bitwise is None


def test_hostile_strings_cannot_steer_a_terminal():
    text = render_text(hostile_report(), "terminal")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", text)


def test_hostile_strings_stay_text_in_markdown():
    text = render_text(hostile_report(), "markdown")
    outside_code = re.sub(r"`[^`\n]*`", "", text)
    assert "<script>" not in outside_code
    assert "@everyone" not in outside_code
    assert "http://evil" not in outside_code
    assert text.count("<details>") == text.count("</details>")


@settings(max_examples=60, deadline=None)
@given(ANY_TEXT)
@example("'<`'")
def test_any_string_renders_everywhere(text):
    report = hostile_report(text)
    assert decode(encode(report)) == report
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", render_text(report, "terminal"))
    plain = render_text(report, "markdown").replace("\\`", "")  # an escaped one opens no code
    markdown = re.sub(r"`[^`\n]*`", "", plain)
    assert markdown.count("<") == markdown.count("<details>") * 4
    tags = _Tags()
    tags.feed(render_text(report, "html"))
    assert tags.open == []


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("make", [qwen3_report, empty_report, hostile_report])
def test_html_is_well_formed_and_self_contained(make):
    text = render_text(make(), "html")
    tags = _Tags()
    tags.feed(text)
    assert tags.open == []
    assert not tags.seen & {"script", "link", "img", "iframe"}
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#)""", text)


def test_worst_region_comes_first_whatever_the_order_in_the_report():
    report = qwen3_report()
    report.regions.reverse()
    assert render_text(report, "terminal").startswith(HEAD_AT_80)


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 0, "-"), (0, 9, "0.0 %"), (1, 10_000, "<0.1 %"), (1, 8, "12.5 %"), (9999, 10_000, ">99.9 %"), (9, 9, "100.0 %")],
)
def test_percent_never_hides_a_difference(part, whole, text):
    assert words.percent(part, whole) == text


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_a_proof_in_float64_says_that_float32_differs_by_the_order_of_operations(format):
    """The line above it gives the share that still differs: a bare "bits are equal" would contradict it."""
    report = qwen3_report()
    report.whole_program = Witness(transplant_bitwise=True, elements=14, differing=5, arithmetic="float64", before=Bits(elements=14, differing=5),
                                   after=Bits(elements=14, differing=3))
    text = " ".join(re.sub(r"&#39;|&#x27;", "'", re.sub(r"<[^>]*>", " ", render_text(report, format))).split())
    assert "35.7 % of 14 outputs differ, 21.4 % with inference's roundings (by the order of float32 operations; none in float64)" in text
    assert "training's bits are equal in float64; in float32 3 of 14 outputs still differ, by the order of operations" in text
    assert "bits are equal (float64)" not in text


def truncating_report():
    """Both sides round one value in the same place: toward zero, and to nearest."""
    entry = Moved(value="x*w", rounded_in="training", dtype="bfloat16", mode="training to nearest even, inference toward zero", mechanism="rounding mode")
    region = Region(id="r1", rule="rounding-mode", kind="rounding-mode", title="rounding mode differs", moved=[entry])
    one = Count(inference=1, training=1)
    return conclude(Report(graphdiff="0", inference=Side(kind="function", model="k.py:trunc", mode="eager"), training=Side(kind="function", model="k.py:near", mode="eager"),
                           summary=Summary(values=one, matched=1, unmatched=Count(), regions=1, moved=Count()), regions=[region]), mode_differs=True)


@pytest.mark.parametrize("format", ["terminal", "markdown", "html"])
def test_another_rounding_mode_is_no_mode_of_capture_and_no_moved_rounding(format):
    text = " ".join(re.sub(r"<[^>]*>", " ", render_text(truncating_report(), format, **({"width": 200} if format == "terminal" else {}))).split())
    both = "training to nearest even, inference toward zero"
    assert f"MODE DIFFERS: nothing moved, but 1 value is rounded in another mode on each side ({both}); exit status 1" in text
    assert f"bfloat16, {both}" in text
    assert "captured in unlike modes" not in text and "in training only" not in text.replace("rounded in training only", "")
    region = truncating_report().regions[0]
    assert (region.moved_in("training"), region.moved_in("inference")) == (0, 0)
