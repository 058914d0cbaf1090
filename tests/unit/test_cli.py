"""The command line: help, usage errors, exit statuses, what goes to stdout and what to stderr."""

import os
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import pytest
from sample_report import qwen3_report

import graphdiff
from graphdiff.cli.main import main
from graphdiff.errors import GraphdiffError
from graphdiff.report import decode
from graphdiff.report.model import Count


@dataclass(frozen=True)
class Options:
    target: str
    layers: int | None
    tokens: int
    attn: str
    autocast: str | None
    fail_on: str
    mode: str = "compiled"
    bucket: int | None = None
    ptx: bool = False


@pytest.fixture
def pipeline(monkeypatch):
    """A pipeline that answers at once and remembers what it was asked."""
    fake = types.ModuleType("graphdiff.pipeline")
    fake.asked = []
    fake.report = qwen3_report()
    fake.CompareOptions = Options

    def compare(inference, training, **more):
        fake.asked.append((inference, training, more))
        return fake.report

    fake.compare = compare
    monkeypatch.setitem(sys.modules, "graphdiff.pipeline", fake)
    monkeypatch.setattr(graphdiff, "pipeline", fake, raising=False)
    return fake


def failing(error):
    """A compare that raises."""

    def compare(*_, **__):
        raise error

    return compare


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["compare"],
        ["capture"],
        ["capture", "vllm"],
        ["capture", "transformers"],
        ["capture", "function"],
        ["show"],
        ["rules"],
        ["rules", "list"],
        ["rules", "show"],
        ["rules", "check"],
    ],
)
def test_every_command_has_help(arguments, capsys):
    assert main([*arguments, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Usage: graphdiff" in text
    if arguments and arguments not in (["capture"], ["rules"]):
        assert "Exit status" in text


def test_help_lists_no_command_that_does_not_exist(capsys):
    main(["--help"])
    text = capsys.readouterr().out
    listed = text[text.index("Commands:") :]
    assert [line.split()[0] for line in listed.splitlines()[1:] if line.strip()] == [
        "compare",
        "show",
        "patch",
        "verify",
        "capture",
        "rules",
    ]


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"graphdiff {graphdiff.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["compare"],
        ["compare", "a"],
        ["compare", "a", "b", "--seed", "x"],
        ["compare", "a", "b", "--layers", "0"],
        ["compare", "a", "b", "--fail-on", "sometimes"],
        ["compare", "a", "b", "--format", "sarif"],
        ["compare", "a", "b", "--format", "terminal,json"],
        ["capture", "vllm", "m"],
        ["show"],
    ],
)
def test_usage_errors_are_status_2_on_stderr(arguments, pipeline, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err != "" and "Traceback" not in captured.err
    assert pipeline.asked == []


@pytest.mark.parametrize("arguments", [["--baseline", "old.json"], ["--baseline=old.json"], ["--baseline"]])
def test_an_announced_option_is_not_available_yet(arguments, capsys):
    assert main(["compare", "a", "b", *arguments]) == 2
    assert capsys.readouterr().err == "graphdiff: --baseline is not available yet: see graphdiff compare --help\n"


def test_findings_are_status_1_whatever_the_format(pipeline, tmp_path, capsys):
    for format in ("terminal", "json", "markdown", "html"):
        assert main(["compare", "a", "b", "--format", format]) == 1
    assert main(["compare", "a", "b", "--format", "json,html", "-o", str(tmp_path)]) == 1


def test_never_failing_is_status_0_and_says_so(pipeline, capsys):
    assert main(["compare", "a", "b", "--fail-on", "never"]) == 0
    assert "MOVED: 15 values rounded in training only, 0 in inference only (365 over all layers); exit status 0" in \
        " ".join(capsys.readouterr().out.split())


def test_nothing_matched_is_status_2(pipeline, capsys):
    pipeline.report.summary.moved = Count()
    pipeline.report.summary.matched = 0
    assert main(["compare", "a", "b", "--fail-on", "never"]) == 2


def test_options_reach_the_pipeline(pipeline, capsys):
    main(
        [
            "compare",
            "vllm:m",
            "transformers:m",
            "--seed",
            "3",
            "--target",
            "native",
            "--layers",
            "2",
            "--tokens",
            "5",
            "--attn",
            "sdpa",
            "--autocast",
            "bfloat16",
            "--fail-on",
            "unmatched",
        ]
    )
    inference, training, more = pipeline.asked[0]
    assert (inference, training, more["inputs"], more["seed"]) == ("vllm:m", "transformers:m", None, 3)
    assert more["options"] == Options("native", 2, 5, "sdpa", "bfloat16", "unmatched")


def test_the_written_report_holds_the_status(pipeline, tmp_path, capsys):
    main(["compare", "a", "b", "--format", "json", "-o", str(tmp_path / "r.json")])
    assert decode((tmp_path / "r.json").read_bytes()).exit_status == 1


def test_an_error_is_one_line_without_traceback(pipeline, capsys):
    pipeline.compare = failing(GraphdiffError("not a capture", where="a.cap", fix="capture again"))
    assert main(["compare", "a", "b"]) == 2
    assert capsys.readouterr().err == "graphdiff: not a capture (a.cap): capture again\n"


@pytest.mark.parametrize("arguments", [["--debug", "compare", "a", "b"], ["compare", "a", "b", "--debug"]])
def test_debug_shows_the_traceback_wherever_it_stands(arguments, pipeline, capsys):
    pipeline.compare = failing(GraphdiffError("broken"))
    assert main(arguments) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ZeroDivisionError("by\nzero"), "internal error: ZeroDivisionError: by zero: run with --debug"),
        (RecursionError("deep"), "internal error: RecursionError"),
        (MemoryError(), "out of memory"),
        (ModuleNotFoundError("No module named 'vllm'", name="vllm"), "pip install 'graphdiff-rl[vllm]'"),
    ],
)
def test_the_unexpected_is_one_line_and_status_2(error, says, pipeline, capsys):
    pipeline.compare = failing(error)
    assert main(["compare", "a", "b"]) == 2
    text = capsys.readouterr().err
    assert says in text and text.count("\n") == 1


def test_interrupting_is_status_130(pipeline, capsys):
    pipeline.compare = failing(KeyboardInterrupt())
    assert main(["compare", "a", "b"]) == 130
    assert capsys.readouterr().err.strip() == "graphdiff: interrupted"


def run_python(code: str, **more) -> subprocess.CompletedProcess:
    """Python in a process of its own."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, **more)


def test_what_an_engine_prints_stays_out_of_the_answer():
    done = run_python(
        "import os, sys\n"
        "from graphdiff.cli.streams import stdout_for_answer\n"
        "print('before')\n"
        "with stdout_for_answer():\n"
        "    print('python'); os.write(1, b'C\\n'); os.system('echo child')\n"
        "print('after')\n"
    )
    assert done.stdout == "before\nafter\n"
    assert sorted(done.stderr.split()) == ["C", "child", "python"]


def test_help_imports_nothing_heavy():
    done = run_python(
        "import sys\n"
        "from graphdiff.cli.main import main\n"
        "main(['compare', '--help'])\n"
        "heavy = {'torch', 'vllm', 'transformers', 'triton', 'networkx', 'numpy', 'rich', 'jinja2', 'msgspec'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    assert done.stderr == "[]\n"


def test_warnings_of_what_is_captured_are_not_printed(tmp_path):
    """torch warns of what it compiles; the line that says what is wrong stands alone."""
    pytest.importorskip("torch")
    (tmp_path / "w.py").write_text("import warnings, torch\ndef inputs(seed): return (torch.ones(2, 2),)\n"
                                   "def f(x):\n    warnings.warn('mixed in the scheduler node')\n    return torch.linalg.svd(x)[1]\n")
    command = [sys.executable, "-m", "graphdiff", "capture", "function", "w.py:f", "--inputs", "w.py:inputs", "-o", "x.cap"]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONWARNINGS"} | {"PYTHONPATH": str(Path(__file__).parents[2])}

    def said(*more):
        done = subprocess.run([*command, *more], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 2
        return done.stderr

    assert said().startswith("graphdiff: no lowering for") and said().count("\n") == 1
    assert "UserWarning: mixed in the scheduler node" in said("--debug")


def test_a_closed_pipe_is_quiet():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "graphdiff", "--help"], stdout=writing, stderr=subprocess.PIPE, timeout=60
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_progress_is_silent_in_a_pipe(capsys):
    from graphdiff.cli.progress import progress

    with progress() as say:
        say("[working]")
    assert capsys.readouterr() == ("", "")
