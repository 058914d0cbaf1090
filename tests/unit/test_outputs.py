"""`--output`: never over what is read, never over what a command did not make, links and pipes stay what they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from test_bad_input import fails, functions, good, made  # noqa: F401

from graphdiff.cli.main import main
from graphdiff.errors import GraphdiffError
from graphdiff.patch import check_folder
from graphdiff.paths import refuse_inputs, write_whole
from graphdiff.report import chosen_formats, plan
from graphdiff.store import check_output, encode_capture, read_capture, write_capture

ROOT = Path(__file__).parents[2]
TRACE = ROOT / "fixtures" / "dumps" / "inference"


@pytest.fixture
def pair(tmp_path, monkeypatch) -> list[str]:
    """Two captures with a finding, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name, rounded in (("e.cap", True), ("t.cap", False)):
        write_capture(name, made(rounded=rounded))
    return ["compare", "e.cap", "t.cap"]


# ---- what is read is never written
@pytest.mark.parametrize("output", ["e.cap", "./t.cap", "link.cap", "hard.cap", "sub/../e.cap"])
def test_a_report_never_replaces_a_capture_it_was_made_from(output, pair, fails):  # noqa: F811
    os.symlink("e.cap", "link.cap")
    os.link("e.cap", "hard.cap")
    os.mkdir("sub")
    before = Path("e.cap").read_bytes()
    fails(*pair, "--format", "json", "-o", output, says=("which this command reads", "another name"))
    assert Path("e.cap").read_bytes() == before and os.path.islink("link.cap")


def test_a_capture_never_replaces_what_it_was_made_from(functions, tmp_path, monkeypatch, fails):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inputs.py").write_text("import functions\n")
    before = functions.read_text()
    for output in ("functions.py", "inputs.py"):
        fails("capture", "function", "functions.py:good", "--inputs", "inputs.py:inputs", "-o", output, says=("which this command reads",))
    assert functions.read_text() == before
    (trace,) = [f for f in TRACE.iterdir() if f.is_file()][:1]
    (tmp_path / "dumps").mkdir()
    (tmp_path / "dumps" / "trace.log").write_bytes(trace.read_bytes())
    fails("capture", "dumps", "dumps/trace.log", "-o", "dumps/trace.log", says=("which this command reads",))
    fails("capture", "dumps", "dumps", "-o", "dumps/trace.log", says=("exists and is no capture",))
    assert (tmp_path / "dumps" / "trace.log").read_bytes() == trace.read_bytes()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "model" / "model.safetensors").write_text("weights")
    for command in ("transformers", "vllm"):
        for name in ("config.json", "model.safetensors"):
            fails("capture", command, "model", "-o", f"model/{name}", says=("which this command reads",))
            fails("compare", f"{command}:model", f"{command}:model", "-o", f"model/{name}", says=("which this command reads",))


def test_a_capture_replaces_captures_and_empty_files_only(tmp_path, fails):  # noqa: F811
    write_capture(tmp_path / "old.cap", made())
    (tmp_path / "empty.cap").touch()
    for name in ("old.cap", "empty.cap", "new.cap"):
        check_output(tmp_path / name)
    (tmp_path / "notes.txt").write_text("mine")
    fails("capture", "dumps", str(TRACE), "-o", str(tmp_path / "notes.txt"), says=("exists and is no capture", "another name"))
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(("output", "says"), [("-", "is not printed"), ("/dev/stdout", "is not printed"), ("", "--output is empty"), ("new/", "names a folder")])
def test_places_for_no_capture(output, says, tmp_path, monkeypatch, fails):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    fails("capture", "dumps", str(TRACE), "-o", output, says=(says,))
    assert os.listdir(tmp_path) == []


def test_inputs_that_are_not_there_refuse_nothing(tmp_path):
    refuse_inputs(tmp_path / "x", [tmp_path / "gone", ""])


# ---- links, pipes, full disks
def test_a_link_stays_and_its_target_is_written(pair, capsys):
    os.mkdir("far")
    os.symlink("far/real.json", "report.json")
    for _ in range(2):
        assert main([*pair, "-o", "report.json"]) == 1
        assert os.path.islink("report.json") and json.loads(Path("far/real.json").read_text())["schema"] == 1
    write_capture("far/x.cap", made())
    os.symlink("far/x.cap", "x.cap")
    write_capture("x.cap", made(tokens=5))
    assert os.path.islink("x.cap") and len(read_capture("far/x.cap").header.probe.tokens) == 5
    assert sorted(os.listdir("far")) == ["real.json", "x.cap"]


def through_a_pipe(path: str, act) -> bytes:
    """What a reader of the named pipe `path` gets while `act` runs."""
    os.mkfifo(path)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(Path(path).read_bytes()))
    reader.start()
    act()
    reader.join(30)
    assert Path(path).is_fifo()
    return got[0]


def test_a_pipe_is_written_into(pair, capsys):
    report = through_a_pipe("pipe", lambda: main([*pair, "--format", "json", "-o", "pipe"]))
    assert json.loads(report)["schema"] == 1
    assert through_a_pipe("pipe.cap", lambda: write_capture("pipe.cap", made())) == encode_capture(made())
    assert capsys.readouterr() == ("", "")


def test_our_own_stdout_keeps_what_stands_in_it(pair, monkeypatch):
    monkeypatch.setattr(os, "replace", lambda *_: pytest.fail("a device was replaced"))
    read, write = os.pipe()
    saved = os.dup(1)
    os.dup2(write, 1)
    try:
        write_whole("/dev/stdout", b"text", "the report")
    finally:
        os.dup2(saved, 1)
        os.close(write)
    assert os.read(read, 99) == b"text"


def test_an_appended_file_is_not_cut(pair):
    Path("log").write_text("before\n")
    with open("log", "a") as log:
        code = "import os, sys; os.replace = None; from graphdiff.paths import write_whole; write_whole('/dev/stdout', b'after', 'x')"
        subprocess.run([sys.executable, "-c", code], stdout=log, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert Path("log").read_text() == "before\nafter"


@pytest.mark.parametrize("arguments", [["show", "e.cap"], ["compare", "e.cap", "t.cap"], ["compare", "e.cap", "t.cap", "--format", "json"], ["--help"]])
def test_a_full_disk_behind_stdout_is_one_line(arguments, pair):
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "graphdiff", *arguments], stdout=full, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "No space left" in done.stderr and "internal" not in done.stderr


def test_a_full_disk_leaves_what_was_there(pair, monkeypatch, fails):  # noqa: F811
    Path("report.json").write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    fails(*pair, "-o", "report.json", says=("cannot be written: No space left", "report.json"))
    assert Path("report.json").read_text() == "old" and sorted(os.listdir()) == ["e.cap", "report.json", "t.cap"]
    with pytest.raises(GraphdiffError, match="No space left"):
        write_capture("e.cap", made(tokens=5))
    assert Path("e.cap").read_bytes() == encode_capture(made())


def test_a_file_keeps_its_mode(tmp_path):
    path = tmp_path / "x.md"
    path.write_text("old")
    path.chmod(0o600)
    write_whole(path, b"new", "the report")
    assert path.read_text() == "new" and path.stat().st_mode & 0o777 == 0o600


# ---- formats and names
@pytest.mark.parametrize(("name", "start"), [("r.json", '{\n  "schema"'), ("r.md", "### graphdiff"), ("r.html", "<!doctype html>"), ("r.txt", "inference"), ("r.log", "inference")])
def test_an_extension_says_the_format(name, start, pair, capsys):
    assert main([*pair, "-o", name]) == 1
    assert Path(name).read_text().lower().startswith(start.lower())
    said = capsys.readouterr()
    assert said.err == f"wrote {name}\n" and bool(said.out) == (name in ("r.txt", "r.log"))


@pytest.mark.parametrize(("format", "output", "says"), [
    ("html", "x.json", ("--format html", "says json", "x.html")),
    ("terminal", "x.md", ("says markdown", "x.txt")),
    ("html,json", "out.html", ("several formats", "give a directory")),
    ("html,json", "-", ("several formats need a directory",)),
    ("json", "", ("--output is empty",)),
    ("json", "e.cap/", ("--output is a file", "slash")),
])
def test_a_format_and_a_name_that_disagree(format, output, says, pair, fails):  # noqa: F811
    fails(*pair, "--format", format, "-o", output, says=says)
    assert sorted(os.listdir()) == ["e.cap", "t.cap"]


def test_a_dash_is_stdout(pair, capsys):
    assert main([*pair, "--format", "json", "-o", "-"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["schema"] == 1 and said.err == "" and not Path("-").exists()


def test_a_folder_that_is_there_takes_any_name(tmp_path):
    (tmp_path / "v1.json").mkdir()
    assert plan(("json", "html"), tmp_path / "v1.json").files["html"] == tmp_path / "v1.json" / "report.html"
    assert chosen_formats(None, tmp_path / "v1.json") == ("terminal",)
    assert plan(("json", "html"), tmp_path / "run-0.5").files["html"] == tmp_path / "run-0.5" / "report.html"


# ---- patches
@pytest.mark.parametrize(("name", "says"), [("torch", "would hide"), ("json", "would hide Python's json"), ("two words", "no name for one"), ("class", "no name for one"),
                                            ("1st", "no name for one"), ("-", "no name for one|names none"), ("filled", "is no patch"), ("app", "is no patch")])
def test_folders_for_no_patch(name, says, tmp_path):
    if name == "torch":
        pytest.importorskip("torch")
    (tmp_path / "filled").mkdir()
    (tmp_path / "filled" / "notes.txt").write_text("mine")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "manifest.json").write_text('{"name": "a web app"}')
    with pytest.raises(GraphdiffError, match=says):
        check_folder(tmp_path / name)


def test_folders_for_a_patch(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    old = tmp_path / "qwen3_rounding"
    old.mkdir()
    (old / "__init__.py").touch()
    (old / "manifest.json").write_text('{"graphdiff": "0.1.0", "schema": 1, "checksum": ""}')
    (tmp_path / "empty").mkdir()
    for name in ("qwen3_rounding", "empty", "new", "deep/new"):
        assert check_folder(tmp_path / name) == tmp_path / name
    with pytest.raises(GraphdiffError, match="names none"):
        check_folder("")


def test_patch_says_a_bad_folder_before_it_reads(tmp_path, fails):  # noqa: F811
    fails("patch", "gone.cap", "gone.cap", "-o", str(tmp_path / "os"), says=("would hide Python's os",))
