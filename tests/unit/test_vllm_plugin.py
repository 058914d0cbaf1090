"""The engine's plugin and what travels between processes: nothing unless asked, nothing lost, errors in words."""

import json
import subprocess
import sys

import pytest

from graphdiff.capture.vllm.request import Request, read_request, read_status, status_file, write_status
from graphdiff.errors import GraphdiffError


def test_register_does_and_imports_nothing_when_no_capture_is_asked_for():
    code = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "from graphdiff.capture.vllm.plugin import register\n"
        "register(); register()\n"
        "heavy = {'torch', 'vllm', 'transformers', 'triton', 'numpy', 'msgspec'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "mine = sorted(m for m in set(sys.modules) - before if m.startswith('graphdiff'))\n"
        "print(mine)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PATH": ""}, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(
        ["graphdiff", "graphdiff.capture", "graphdiff.capture.vllm", "graphdiff.capture.vllm.plugin"]
    )


def test_the_entry_point_is_the_plugin():
    from importlib.metadata import entry_points

    found = [e.value for e in entry_points(group="vllm.general_plugins") if e.name == "graphdiff"]
    assert found == ["graphdiff.capture.vllm.plugin:register"]


def test_a_request_survives_its_file(tmp_path):
    request = Request(output="/x/y.capture", combo_kernels=False, graph_partition=True, inductor={"emulate_precision_casts": True}, options={"tokens": 8})
    request.save(tmp_path / "request.json")
    assert read_request(tmp_path / "request.json") == request


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"output": "x", "targett": "cuda:90"}'])
def test_a_bad_request_is_named(tmp_path, text):
    (tmp_path / "request.json").write_text(text)
    with pytest.raises(GraphdiffError, match="no capture request"):
        read_request(tmp_path / "request.json")


def test_a_missing_request_is_named(tmp_path):
    with pytest.raises(GraphdiffError, match="no capture request"):
        read_request(tmp_path / "nothing.json")


def test_a_status_brings_the_error_back(tmp_path):
    output = tmp_path / "a.capture"
    assert read_status(output) is None
    write_status(output)
    read_status(output).check()
    write_status(output, GraphdiffError("nothing was captured", where="mode NONE", fix="set mode 3"))
    with pytest.raises(GraphdiffError) as caught:
        read_status(output).check()
    assert str(caught.value) == "nothing was captured (mode NONE): set mode 3"
    assert json.loads(status_file(output).read_text())["ok"] is False
    assert [path.name for path in tmp_path.iterdir()] == ["a.capture.status.json"]


def test_an_unsupported_engine_is_refused_with_the_versions_that_work(monkeypatch):
    from graphdiff.capture.vllm import versions

    monkeypatch.setattr(versions, "installed_version", lambda: "0.9.1")
    with pytest.raises(GraphdiffError, match="vllm 0.9.1 is not supported") as caught:
        versions.engine()
    assert "0.32" in caught.value.where


def test_a_missing_engine_names_the_extra(monkeypatch):
    from graphdiff.capture.vllm import versions

    monkeypatch.setattr(versions, "DISTRIBUTIONS", ("no-such-distribution",))
    with pytest.raises(GraphdiffError, match=r"pip install 'graphdiff-rl\[vllm\]'"):
        versions.installed_version()


def test_a_capture_ends_our_engine_once_and_leaves_others_alone():
    from graphdiff.capture.vllm.session import CaptureDone, Session

    taken, reported = [], []
    theirs = Session(Request(output="x"), taken.append, reported.append)
    theirs.captured("raw")
    theirs.captured("a drafter")
    theirs.failed(GraphdiffError("too late"))
    assert taken == ["raw"] and reported == [None]

    ours = Session(Request(output="x", stop=True), taken.append, reported.append)
    with pytest.raises(CaptureDone) as caught:
        ours.failed(ValueError("odd\nand long"))
    assert not isinstance(caught.value, Exception)
    assert "ValueError: odd" in str(caught.value.error) and "\n" not in str(caught.value.error)


def test_an_engine_of_another_version_runs_and_the_status_says_why_there_is_no_capture(tmp_path, monkeypatch):
    from graphdiff.capture.vllm import session, versions

    monkeypatch.setattr(versions, "installed_version", lambda: "0.9.1")
    session.begin_requested(Request(output=str(tmp_path / "a.capture")))
    assert session.active() is None
    with pytest.raises(GraphdiffError, match="vllm 0.9.1 is not supported"):
        read_status(tmp_path / "a.capture").check()


@pytest.mark.parametrize("switch", [{"graph_partition": True}, {"inductor": {"emulate_precision_casts": True}}])
def test_a_request_changes_nothing_in_how_an_engine_of_ones_own_compiles(switch, tmp_path, monkeypatch):
    from graphdiff.capture.vllm import session

    monkeypatch.setattr(session, "begin", lambda current: pytest.fail("the capture began"))
    session.begin_requested(Request(output=str(tmp_path / "a.capture"), **switch))
    with pytest.raises(GraphdiffError, match="use_inductor_graph_partition"):
        read_status(tmp_path / "a.capture").check()


@pytest.mark.parametrize(
    ("made", "options"),
    [
        ({"mode": "VLLM_COMPILE", "shapes": "dynamic"}, {"mode": "compiled", "bucket": None, "graph_partition": False}),
        ({"mode": "VLLM_COMPILE, graph partition", "shapes": "1 token"}, {"mode": "compiled", "bucket": 1, "graph_partition": True}),
        ({"mode": "VLLM_COMPILE", "shapes": "16 tokens"}, {"mode": "compiled", "bucket": 16, "graph_partition": False}),
        ({"mode": "eager", "shapes": ""}, {"mode": "eager", "bucket": None, "graph_partition": False}),
    ],
)
def test_verify_runs_the_engine_as_it_was_captured(made, options):
    from graphdiff.verify.package import engine_options

    manifest = {"captures": {"inference": {"target": "cuda:90", "tokens": 8, **made}}}
    assert engine_options(manifest) == {"target": "cuda:90", "tokens": 8, "inductor": [], **options}
    manifest["captures"]["inference"]["inductor"] = {"emulate_precision_casts": True}
    assert engine_options(manifest)["inductor"] == ["emulate_precision_casts=True"]
