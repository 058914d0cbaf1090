"""Bad input through the command line: exit status 2, one line on stderr that says what, where and what to do."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from graphdiff.cli.main import main
from graphdiff.probe import probe
from graphdiff.program import Builder
from graphdiff.store import Capture, CaptureInfo, ModelInfo, ProbeTokens, encode_capture, write_capture

ROOT = Path(__file__).parents[2]


def made(kind: str = "function", scale: float = 2.3, rounded: bool = True, layers: int = 1, tokens: int = 4, seed: int = 0, name: str = "m",
         keep: bool = False) -> Capture:
    """A small real capture, made without torch; with `keep` its inputs are in it."""
    b = Builder()
    x = b.leaf("x", np.random.default_rng(seed).standard_normal((4, 8)).astype(np.float32), "float32", dynamic=True)
    y = b.op("exp", x)
    y = b.round(y, "bfloat16") if rounded else y
    b.output("y", b.op("mul", y, scale))
    data = probe(b.program, b.leaf_bits, static_rule=kind != "function", pin_anchors=kind != "function")
    header = CaptureInfo(kind=kind, model=ModelInfo(name=name, fingerprint=name, layers=layers),
                         probe=ProbeTokens(tokens=list(range(tokens)), positions=list(range(tokens)), seed=seed))
    if keep:
        b.program.data.update(b.leaf_bits)
    return Capture(header, b.program, data, {})


@pytest.fixture
def good(tmp_path) -> str:
    path = tmp_path / "good.cap"
    write_capture(path, made())
    return str(path)


@pytest.fixture
def fails(capsys):
    """Runs a command that must not run, and returns its one line."""

    def run(*arguments: str, says: tuple[str, ...] = ()) -> str:
        status = main(list(arguments))
        captured = capsys.readouterr()
        assert status == 2, captured
        assert captured.out == "" and captured.err.count("\n") == 1 and captured.err.startswith("graphdiff: "), captured
        assert "Traceback" not in captured.err and "internal error" not in captured.err, captured.err
        for words in says:
            assert words in captured.err, captured.err
        assert main([*arguments, "--debug"]) == 2
        debug = capsys.readouterr().err
        assert "Traceback" in debug and debug.endswith(captured.err), debug
        return captured.err

    return run


# ---- files that are no capture
def foreign(path: Path) -> dict[str, tuple[bytes, str]]:
    good = encode_capture(made())
    with zipfile.ZipFile(path / "z", "w") as archive:
        archive.writestr("a", "b")
    return {
        "empty": (b"", "an empty file"), "text": (b"import torch\n" * 9, "a text file"), "truncated": (good[:-20], "cut short"),
        "cut in its header": (good[:60], "cut short"), "very short": (good[:4], "first bytes"),
        "safetensors": (struct.pack("<Q", 60) + b'{"w":{}}' + b" " * 80, "a safetensors file"),
        "zip": ((path / "z").read_bytes(), "a zip archive"), "pickle": (b"\x80\x04\x95" + bytes(40), "a pickle"),
        "another version": (good[:6] + b"\x63\x00" + good[8:], "format 99"), "flipped": (good[:40] + b"\xff" + good[41:], "checksum"),
        "longer": (good + b"more", "too many"),
    }


@pytest.mark.parametrize("name", ["empty", "text", "truncated", "cut in its header", "very short", "safetensors", "zip", "pickle",
                                  "another version", "flipped", "longer"])
def test_what_is_no_capture(name, tmp_path, good, fails):
    content, says = foreign(tmp_path)[name]
    bad = tmp_path / "bad.cap"
    bad.write_bytes(content)
    for arguments in (["show", str(bad)], ["compare", str(bad), good], ["compare", good, str(bad)]):
        fails(*arguments, says=(says, str(bad)))


def test_missing_files_and_folders(tmp_path, good, fails):
    fails("show", str(tmp_path / "none.cap"), says=("no such capture file", "graphdiff capture"))
    fails("compare", good, str(tmp_path), says=("a folder is not a capture",))


def test_an_oversized_file(tmp_path, good, fails):
    big = tmp_path / "big.cap"
    with open(big, "wb") as file:
        file.truncate(3 << 30)  # a hole: takes no space
    fails("compare", good, str(big), says=("more than a capture may have",))


def test_a_capture_that_claims_endless_work(tmp_path, good, fails):
    b = Builder()
    x = b.leaf("x", np.ones(1, np.float32), "float32", dynamic=True)
    b.output("y", b.op("sum", type(x)((1 << 31,), node=x.node, strides=(0,)), axes=(0,)))
    capture = made()
    hostile = Capture(capture.header, b.program, probe_of_nothing(b), {})
    write_capture(tmp_path / "hostile.cap", hostile)
    assert (tmp_path / "hostile.cap").stat().st_size < 2000
    fails("compare", str(tmp_path / "hostile.cap"), good, says=("more than can be compared",))


def probe_of_nothing(b: Builder):
    from graphdiff.probe import ProbeData

    n = len(b.program.nodes)
    reads = {k: np.zeros(0, np.int32) for k in ("consumer", "slot", "sketch", "state", "count", "total", "static")}
    return ProbeData(np.zeros(0, np.uint64), np.zeros(1, np.int64), np.zeros(0, np.uint64), np.full(n, -1, np.int32),
                     np.full(n, -1, np.int32), np.full(n, -1, np.int8), np.zeros(n, np.int64), reads, [((), ())], {})


def test_texts_in_a_capture_cannot_talk_to_the_terminal(tmp_path, capsys):
    nasty = "evil\x1b[31m\x07\r\nname\u202e"
    paths = []
    for i, rounded in enumerate((True, False)):
        capture = made(rounded=rounded)
        capture.header.model.name = capture.header.mode = capture.header.target = nasty
        capture.header.versions = {nasty: nasty}
        capture.header.notes = capture.header.not_captured = capture.header.differences = [nasty]
        sites = [type(s)(kernel=nasty, name=nasty, module=nasty, file=nasty, text=nasty, line=3) for s in capture.program.sites]
        capture.program.sites = sites
        paths.append(str(tmp_path / f"{i}.cap"))
        write_capture(paths[-1], capture)
    for arguments in (["show", paths[0]], ["show", paths[0], "--format", "json"],
                      *(["compare", *paths, "--format", f] for f in ("terminal", "json", "markdown", "html"))):
        assert main(arguments) in (0, 1)
        text = capsys.readouterr().out
        assert "evil" in text and not {"\x1b", "\x07", "\r"} & set(text), arguments
        assert "\u202e" not in text or "json" in arguments, arguments


# ---- captures that do not go together
@pytest.mark.parametrize(("one", "two", "says"), [
    (dict(kind="vllm", name="a"), dict(kind="transformers", name="b"), "different models or weights"),
    (dict(kind="vllm"), dict(kind="transformers", tokens=5), "different tokens"),
    (dict(kind="function"), dict(kind="transformers"), "share no probe"),
    (dict(kind="function"), dict(kind="function", seed=1), "different seeds"),
])
def test_a_wrong_pair(one, two, says, tmp_path, fails):
    for name, how in (("one", one), ("two", two)):
        write_capture(tmp_path / name, made(**how))
    fails("compare", str(tmp_path / "one"), str(tmp_path / "two"), says=(says,))


def test_two_different_functions(tmp_path, good, fails):
    b = Builder()
    x = b.leaf("q", np.random.default_rng(9).standard_normal((3, 5)).astype(np.float32), "float32", dynamic=True)
    b.output("z", b.op("sin", b.op("sqrt", b.op("mul", x, x))))
    capture = Capture(made().header, b.program, probe(b.program, b.leaf_bits, static_rule=False, pin_anchors=False), {})
    write_capture(tmp_path / "other", capture)
    fails("compare", good, str(tmp_path / "other"), says=("different computations",))


# ---- functions
FUNCTIONS = """
import sys, torch
def good(x): return torch.exp(x.float()).to(torch.bfloat16) * 2.3
def raises(x): raise ValueError("two\\nlines")
def leaves(x): sys.exit(0)
def number(x): return 3
def nothing(x): return None
def svd(x): return torch.linalg.svd(x.float())[1]
def inputs(seed): return (torch.randn(4, 8).to(torch.bfloat16),)
def bad_inputs(seed): raise RuntimeError("no\\ninputs")
def leaving_inputs(seed): sys.exit(0)
constant = 3
"""


@pytest.fixture
def functions(tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "functions.py"
    path.write_text(FUNCTIONS)
    for name, text in {"imports": "import nosuchmodule", "syntax": "def f(:", "exits": "raise SystemExit(0)"}.items():
        (tmp_path / f"{name}.py").write_text(text)
    return path


@pytest.mark.parametrize(("function", "inputs", "says"), [
    ("functions.py:raises", "functions.py:inputs", ("raised ValueError: two lines",)),
    ("functions.py:leaves", "functions.py:inputs", ("raised SystemExit",)),
    ("functions.py:number", "functions.py:inputs", ("returns no",)),
    ("functions.py:nothing", "functions.py:inputs", ("returns no",)),
    ("functions.py:svd", "functions.py:inputs", ("no lowering for aten._linalg_svd", "functions.py:8", "rewrite")),
    ("functions.py:good", "functions.py:bad_inputs", ("functions.py:bad_inputs raised RuntimeError: no inputs",)),
    ("functions.py:good", "functions.py:leaving_inputs", ("raised SystemExit",)),
    ("functions.py:good", "functions.py:none", ("has no function none",)),
    ("functions.py:godo", "functions.py:inputs", ("has no function godo", "check the name")),
    ("functions.py:constant", "functions.py:inputs", ("has no function constant",)),
    ("missing.py:good", "functions.py:inputs", ("no such file",)),
    ("functions.py", "functions.py:inputs", ("is not FILE.py:FUNCTION",)),
    ("imports.py:f", "functions.py:inputs", ("imports.py does not import: ModuleNotFoundError", "nosuchmodule")),
    ("syntax.py:f", "functions.py:inputs", ("syntax.py does not import: SyntaxError",)),
    ("exits.py:f", "functions.py:inputs", ("exits.py does not import: SystemExit",)),
])
def test_a_function_that_cannot_be_captured(function, inputs, says, functions, tmp_path, monkeypatch, fails):
    monkeypatch.chdir(tmp_path)
    old = encode_capture(made())
    (tmp_path / "kept.cap").write_bytes(old)
    fails("capture", "function", function, "--inputs", inputs, "-o", "kept.cap", says=says)
    assert (tmp_path / "kept.cap").read_bytes() == old
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["exits.py", "functions.py", "imports.py", "kept.cap", "syntax.py"]


def test_functions_need_inputs(functions, fails):
    fails("compare", f"{functions}:good", f"{functions}:good", says=("needs inputs", "--inputs"))


@pytest.mark.parametrize(("where", "says"), [(".", "it is a folder"), ("functions.py/x.cap", "functions.py is not a folder")])
def test_an_output_that_cannot_be_written_is_said_before_anything_runs(where, says, functions, tmp_path, monkeypatch, fails):
    monkeypatch.chdir(tmp_path)
    fails("capture", "function", "functions.py:leaves", "--inputs", "functions.py:inputs", "-o", where, says=(says, "--output"))
    fails("capture", "transformers", "nosuchmodel", "-o", where, says=(says,))
    fails("capture", "vllm", "nosuchmodel", "-o", where, says=(says,))
    # What only the write can find out; what ran is lost, what stood there is not.
    fails("capture", "function", "functions.py:good", "--inputs", "functions.py:inputs", "-o", "/proc/nope/x.cap", says=("/proc/nope", "cannot be written"))


# ---- models
def test_models_that_are_none(tmp_path, good, monkeypatch, fails):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    out = str(tmp_path / "x.cap")
    for command in ("vllm", "transformers"):
        fails("capture", command, "qwen9-huge", "-o", out, says=("unknown model 'qwen9-huge'", "qwen3-tiny"))
        fails("compare", f"{command}:qwen9-huge", good, says=("unknown model",))
        fails("compare", f"{command}:", good, says=("names no model", f"{command}:qwen3-tiny"))
    empty = tmp_path / "empty"
    empty.mkdir()
    fails("capture", "transformers", str(empty), "-o", out, says=("no config.json", str(empty)))
    (empty / "config.json").write_text("{")
    fails("capture", "transformers", str(empty), "-o", out, says=("no readable model config",))
    (empty / "config.json").write_text('{"model_type": "nosuch"}')
    fails("capture", "transformers", str(empty), "-o", out, says=("no weights can be made up",))
    (empty / "model.safetensors.index.json").write_text("{}")
    fails("capture", "transformers", str(empty), "-o", out, says=("an index but no weights", "fetch"))
    fails("capture", "transformers", good, "-o", out, says=("this file is no model",))
    assert not Path(out).exists()


# ---- switches of an engine
@pytest.mark.parametrize(("arguments", "says"), [
    (["--target", "native", "--graph-partition"], ("without graph partition (--graph-partition)", "--target cuda:90")),
    (["--target", "native", "--mode", "eager", "--graph-partition"], ("--graph-partition",)),
    (["--target", "native", "--mode", "eager", "--inductor", "emulate_precision_casts=true"], ("an eager engine compiles nothing", "--inductor")),
    (["--inductor", "emulate_precision_cast=true"], ("no option", "did you mean emulate_precision_casts")),
    (["--inductor", "combo_kernels=true"], ("has a switch of its own", "--no-combo-kernels")),
    (["--inductor", "graph_partition=true"], ("has a switch of its own", "--graph-partition")),
    (["--inductor", "force_disable_caches=false"], ("cannot be set for a capture",)),
])
def test_switches_that_this_engine_does_not_have(arguments, says, tmp_path, fails):
    pytest.importorskip("vllm")
    fails("capture", "vllm", "qwen3-tiny", *arguments, "-o", str(tmp_path / "x.cap"), says=says)


def test_options_of_inductor_are_for_compiled_code(functions, tmp_path, fails):
    given = ("--inductor", "emulate_precision_casts=true", "-o", str(tmp_path / "x.cap"))
    fails("capture", "function", f"{functions}:good", "--inputs", f"{functions}:inputs", *given, says=("eager code", "add --compile"))
    fails("capture", "transformers", "qwen3-tiny", *given, says=("eager code", "add --compile"))


# ---- what is not installed
BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in BLOCKED:
            raise ModuleNotFoundError(f'No module named {name!r}', name=name.partition('.')[0])
sys.meta_path.insert(0, Blocker())
from graphdiff.cli.main import main
raise SystemExit(main(sys.argv[1:]))
"""


def without(modules: set[str], *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", f"BLOCKED = {modules!r}\n{BLOCKER}", *arguments], capture_output=True, text=True,
                          timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"})


HEAVY = {"torch", "vllm", "transformers", "triton", "safetensors"}


def test_the_base_install_compares_and_shows(tmp_path, good):
    other = tmp_path / "other.cap"
    write_capture(other, made(rounded=False))
    done = without(HEAVY, "compare", good, str(other), "--format", "terminal,json,markdown,html", "-o", str(tmp_path / "out"))
    assert (done.returncode, done.stderr.count("\n"), done.stderr.count("wrote ")) == (1, 4, 4)
    assert "MOVED: 0 values rounded in training only, 1 in inference only" in done.stdout
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["report.html", "report.json", "report.md", "report.txt"]
    assert without(HEAVY, "show", good).returncode == 0
    assert without(HEAVY, "rules", "list").returncode == 0


@pytest.mark.parametrize(("missing", "arguments", "says"), [
    ({"torch"}, ["capture", "function", "f.py:f", "--inputs", "f.py:i", "-o", "x.cap"], "graphdiff-rl[torch]"),
    (HEAVY, ["capture", "transformers", "qwen3-tiny", "-o", "x.cap"], "graphdiff-rl[transformers]"),
    (HEAVY, ["capture", "vllm", "qwen3-tiny", "-o", "x.cap"], "graphdiff-rl[vllm]"),
    ({"vllm"}, ["capture", "vllm", "qwen3-tiny", "-o", "x.cap"], "graphdiff-rl[vllm]"),
    ({"vllm"}, ["compare", "vllm:qwen3-tiny", "transformers:qwen3-tiny"], "graphdiff-rl[vllm]"),
])
def test_what_is_missing_is_named_with_its_extra(missing, arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "f.py").write_text("def f(x): return x\ndef i(seed): return ()\n")
    done = without(missing, *arguments)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and says in done.stderr, done.stderr
    assert not (tmp_path / "x.cap").exists()


# ---- Ctrl-C
@pytest.mark.parametrize("command", [["capture", "function", "slow.py:f", "-o", "out/x.cap"],
                                     ["compare", "slow.py:f", "slow.py:f", "--format", "json,markdown", "-o", "out"]])
def test_interrupting_leaves_one_line_and_no_file(command, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "slow.py").write_text(textwrap.dedent("""
        import pathlib, time
        def f(x): return x
        def inputs(seed):
            pathlib.Path("started").touch()
            time.sleep(60)
    """))
    run = subprocess.Popen([sys.executable, "-m", "graphdiff", *command, "--inputs", "slow.py:inputs"], cwd=tmp_path, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)})
    for _ in range(600):
        if (tmp_path / "started").exists():
            break
        time.sleep(0.1)
    time.sleep(0.2)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=30)
    assert (run.returncode, out, err) == (130, "", "graphdiff: interrupted\n")
    assert [p for p in tmp_path.rglob("*") if p.is_file() and p.name not in ("slow.py", "started") and p.suffix != ".pyc"] == []


def test_interrupting_the_compiler_stops_its_processes():
    pytest.importorskip("triton")
    capture = ROOT / "fixtures" / "cuda-90" / "qwen3-8b-base" / "vllm.capture"
    run = subprocess.Popen([sys.executable, "-m", "graphdiff", "show", str(capture), "--ptx"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True)

    def children() -> list[str]:
        return [pid for file in Path(f"/proc/{run.pid}/task").glob("*/children") for pid in file.read_text().split()]

    for _ in range(300):
        if seen := children():
            break
        time.sleep(0.1)
    time.sleep(1)
    start = time.monotonic()
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert (run.returncode, out, err) == (130, "", "graphdiff: interrupted\n")
    assert seen and time.monotonic() - start < 10
    assert not [pid for pid in seen if Path(f"/proc/{pid}").exists()]


def test_no_answer_rests_on_a_damaged_array(tmp_path, capsys):
    """Arrays are read when they are needed: a bit of any of them flipped is status 2, or changes nothing at all."""
    good, other = tmp_path / "good.cap", tmp_path / "other.cap"
    write_capture(good, made(keep=True))
    write_capture(other, made(rounded=False, keep=True))
    whole = good.read_bytes()
    status, damaged = main(["compare", str(other), str(good)]), tmp_path / "damaged.cap"
    answer, refused = capsys.readouterr().out, 0
    assert status == 1
    start = _arrays_start(whole)
    for place in range(start, len(whole), max(1, (len(whole) - start) // 60)):
        damaged.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1:])
        status = main(["compare", str(other), str(damaged)])
        captured = capsys.readouterr()
        if status == 2:
            assert captured.out == "" and "checksum" in captured.err
            refused += 1
        else:
            assert (status, captured.out.replace("damaged.cap", "good.cap")) == (1, answer)
    assert refused > 20


def _arrays_start(capture: bytes) -> int:
    from graphdiff.store.container import PREFIX

    return PREFIX.size + PREFIX.unpack_from(capture)[2]
