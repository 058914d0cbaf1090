"""`show` and `rules` as text."""

import pytest

from graphdiff.report import listing


def test_labels_then_a_table_per_list():
    text = listing.render(
        {
            "kind": "vllm",
            "versions": {"torch": "2.13.0"},
            "not_captured": [],
            "kernels": [{"name": "triton_0", "roundings": 2, "fused": True}, {"name": "triton_1", "roundings": 1}],
            "notes": ["a", "b"],
        }
    )
    assert text == (
        "kind          vllm\n"
        "versions      torch 2.13.0\n"
        "not captured  -\n"
        "\n"
        "kernels (2)\n"
        "name      roundings  fused\n"
        "triton_0          2  yes\n"
        "triton_1          1  -\n"
        "\n"
        "notes (2)\n"
        "  a\n"
        "  b\n"
    )


def test_long_tables_are_cut_with_a_count():
    text = listing.render({"values": [{"n": number} for number in range(500)]})
    assert "300 more rows: --format json has all" in text


def test_control_characters_do_not_pass():
    assert "\x1b" not in listing.render({"kind": "\x1b[31m", "notes": ["\x1b]0;t\x07"], "rows": [{"\x1b[1m": "\x1b"}]})


ROW = {"value": "xhat", "module": "", "kernel": "triton_per_fused_add_mul_rms_norm_0", "where": "vllm/models/qwen3.py:240", "times": 2, "no": None}


def test_a_table_breaks_no_word_and_shows_no_empty_column():
    text = listing.render({"rows": [{"name": "a", "what": "some words that are long", "no": None}, {"name": "bb", "what": ""}]}, width=40)
    assert text == "\nrows (2)\nname  what\na     some words that are long\nbb\n"


@pytest.mark.parametrize("width", [40, 60, 100])
def test_where_a_table_has_no_room_each_row_is_an_entry_with_whole_words(width):
    text = listing.render({"roundings": [ROW, {**ROW, "module": "model.layers.*.post_attention_layernorm"}]}, width=width)
    for word in ("triton_per_fused_add_mul_rms_norm_0", "vllm/models/qwen3.py:240", "model.layers.*.post_attention_layernorm"):
        assert word in text or len(word) + 10 > width
    assert all(len(line) <= width for line in text.splitlines()) and " no" not in text
    if width == 60:
        assert text.splitlines()[2:5] == ["xhat", "   kernel triton_per_fused_add_mul_rms_norm_0", "   where vllm/models/qwen3.py:240 · times 2"]


def test_the_schema_is_for_programs_and_empty_parts_are_not_said():
    text = listing.render({"schema": 1, "capture": {"layers": None, "shapes": "", "inductor options": {}, "seed": 0}, "differences": ["x"]})
    assert text == "capture  seed 0\n\nunlike production (1)\n  x\n"
