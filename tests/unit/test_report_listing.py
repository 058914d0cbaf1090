"""`show` and `rules` as text."""

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
        "triton_0          2    yes\n"
        "triton_1          1      -\n"
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
