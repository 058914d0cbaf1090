"""What is printed, what is written, and that files appear whole."""

import io
import os

import pytest
from sample_report import qwen3_report

from graphdiff.errors import GraphdiffError
from graphdiff.report import parse_formats, plan, print_text, publish, render
from graphdiff.report.output import write_file


def test_formats_keep_their_order_and_count_once():
    assert parse_formats(" json,terminal, json ,Markdown") == ("json", "terminal", "markdown")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no format"),
        ("sarif", "not available yet"),
        ("terminal,github", "not available yet"),
        ("pdf", "not a format"),
    ],
)
def test_other_formats_are_refused(text, message):
    with pytest.raises(GraphdiffError, match=message):
        parse_formats(text)


def test_without_output_one_format_is_printed(capsys):
    assert render(qwen3_report(), ("json",)) == []
    assert capsys.readouterr().out.startswith('{\n  "schema": 1,')


def test_without_output_several_formats_are_refused():
    with pytest.raises(GraphdiffError, match="several formats need a directory"):
        plan(("terminal", "json"), None)


def test_a_directory_holds_every_format_and_the_terminal_report_is_printed_too(tmp_path, capsys):
    files = render(qwen3_report(), ("terminal", "json", "markdown", "html"), tmp_path / "deep" / "er")
    assert sorted(path.name for path in files) == ["report.html", "report.json", "report.md", "report.txt"]
    assert sorted(os.listdir(tmp_path / "deep" / "er")) == sorted(path.name for path in files)
    assert "MOVED: 15 values" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["out/", "out"])
def test_a_name_without_extension_is_a_directory(tmp_path, name):
    assert render(qwen3_report(), ("json",), str(tmp_path) + "/" + name) == [tmp_path / "out" / "report.json"]


def test_a_name_with_extension_is_a_file(tmp_path, capsys):
    assert render(qwen3_report(), ("markdown",), tmp_path / "pr.md") == [tmp_path / "pr.md"]
    assert (tmp_path / "pr.md").read_text().startswith("### graphdiff")
    assert capsys.readouterr().out == ""


def test_several_formats_into_a_file_are_refused(tmp_path):
    (tmp_path / "report.json").write_text("mine")
    with pytest.raises(GraphdiffError, match="the name of one file"):
        plan(("json", "markdown"), tmp_path / "report.json")
    (tmp_path / "report").write_text("mine")
    with pytest.raises(GraphdiffError, match="--output is a file"):
        plan(("json", "markdown"), tmp_path / "report")


def test_what_cannot_be_written_is_known_before_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GraphdiffError, match="is not a folder"):
        plan(("json",), tmp_path / "file" / "report.json")
    (tmp_path / "taken" / "report.json").mkdir(parents=True)
    with pytest.raises(GraphdiffError, match="it is a folder"):
        plan(("json",), tmp_path / "taken")


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "report.json"
    write_file(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(GraphdiffError, match="No space left"):
        write_file(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["report.json"]


def test_a_file_is_readable_by_others_as_the_umask_says(tmp_path):
    old = os.umask(0o022)
    try:
        write_file(tmp_path / "x.md", "text")
    finally:
        os.umask(old)
    assert (tmp_path / "x.md").stat().st_mode & 0o777 == 0o644


def test_a_stream_without_unicode_gets_replacements():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    publish(qwen3_report(), plan(("terminal",), None), stream)
    stream.flush()
    assert b"vllm 0.32.0 ? qwen3-tiny" in raw.getvalue()


def test_a_reader_that_left_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        print_text("x" * 100_000, stream)
