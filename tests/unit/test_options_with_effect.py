"""An option that would do nothing is refused, its default never is; unknown targets and operands before anything runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_bad_input import fails, functions, good, made  # noqa: F401

from graphdiff import pipeline
from graphdiff.capture.inductor.targets import TARGETS, check_target
from graphdiff.cli.main import main
from graphdiff.errors import GraphdiffError
from graphdiff.hardware.compile import ASSEMBLERS
from graphdiff.store import read_capture, write_capture

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("option", "value", "says"), [
    ("--inputs", "x.py:f", "--inputs is for functions, and both operands are files: leave it out"),
    ("--seed", "5", "--seed is for vllm: operands, transformers: operands and functions, and both operands are files"),
    ("--seed", "0", "--seed is for"),
    ("--target", "cuda:90", "--target is for vllm: operands, and both"),
    ("--mode", "compiled", "--mode is for vllm: operands"),
    ("--layers", "3", "--layers is for vllm: operands and transformers: operands"),
    ("--tokens", "99", "--tokens is for vllm: operands and transformers:"),
    ("--bucket", "1", "--bucket is for vllm: operands, and both operands are files: leave it out"),
    ("--attn", "eager", "--attn is for transformers: operands"),
    ("--autocast", "float16", "--autocast is for transformers: operands"),
])
def test_options_that_do_nothing_to_files(option, value, says, good, fails, capsys):  # noqa: F811
    assert main(["compare", good, good]) == 0  # the defaults of all of them
    capsys.readouterr()
    fails("compare", good, good, option, value, says=(says,))


@pytest.mark.parametrize(("arguments", "says"), [
    (["compare", "CAP", "transformers:qwen3-tiny", "--bucket", "1"], "the operands are a file and a transformers: operand"),
    (["compare", "f.py:f", "f.py:g", "--inputs", "f.py:i", "--layers", "2"], "both operands are functions"),
    (["compare", "vllm:qwen3-tiny", "vllm:qwen3-tiny", "--attn", "sdpa"], "both operands are vllm: operands"),
    (["compare", "vllm:qwen3-tiny", "CAP", "--bucket", "1", "--tokens", "4"], "--tokens has no effect with --bucket"),
    (["capture", "transformers", "qwen3-tiny", "--target", "cuda:90", "-o", "x.cap"], "--target is for compiled code"),
    (["capture", "function", "f.py:f", "--inputs", "f.py:i", "--target", "native", "-o", "x.cap"], "--target is for compiled code"),
    (["capture", "vllm", "qwen3-tiny", "--bucket", "1", "--tokens", "4", "-o", "x.cap"], "--tokens has no effect with --bucket"),
    (["capture", "vllm", "qwen3-tiny", "--target", "native", "--no-combo-kernels", "-o", "x.cap"], "--combo-kernels is for the engine's CUDA code"),
])
def test_options_that_do_nothing_to_other_operands(arguments, says, good, tmp_path, monkeypatch, fails):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    fails(*[good if a == "CAP" else a for a in arguments], says=(says,))


# ---- targets
@pytest.mark.parametrize("arguments", [
    ["compare", "vllm:qwen3-tiny", "CAP"], ["capture", "vllm", "qwen3-tiny", "-o", "x.cap"],
    ["capture", "transformers", "qwen3-tiny", "--compile", "-o", "x.cap"],
    ["capture", "function", "functions.py:leaves", "--inputs", "functions.py:inputs", "--compile", "-o", "x.cap"],
])
@pytest.mark.parametrize("target", ["cuda:91", "rocm", ""])
def test_an_unknown_target_is_refused_before_anything_runs(arguments, target, good, functions, tmp_path, monkeypatch, fails):  # noqa: F811
    if "vllm" in " ".join(arguments):
        pytest.importorskip("vllm")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    said = fails(*[good if a == "CAP" else a for a in arguments], "--target", target, says=(f"unknown target {target!r}", "native, cuda:80, cuda:90, cuda:100"))
    assert "--target" in said and not (tmp_path / "cache").exists()


def test_help_and_documents_name_the_targets_there_are(capsys):
    for name in ("native", *TARGETS):
        check_target(name)
    with pytest.raises(GraphdiffError):
        check_target("cuda:120")
    for command in (["compare"], ["capture", "vllm"], ["capture", "transformers"], ["capture", "function"]):
        main([*command, "--help"])
        text = " ".join(capsys.readouterr().out.split())
        assert set(re.findall(r"cuda:\d+", text[text.index("--target"):text.index("Examples")])) == set(TARGETS), command
    document = (ROOT / "docs" / "hardware_proof.md").read_text()
    assembled = re.search(r"\(`cuda:80`, [^)]*\)", document)[0]
    assert [int(n) for n in re.findall(r"\d+", assembled)] == list(ASSEMBLERS)
    made_for = re.search(r"Captures are made for (.*?)\.", document, re.DOTALL)[1]
    assert set(re.findall(r"`([\w:]+)`", made_for)) == {"native", *TARGETS}


# ---- operands
@pytest.mark.parametrize(("operand", "says"), [
    ("qwen3-1.7b", ("no such capture file (qwen3-1.7b)", "vllm:qwen3-1.7b or transformers:qwen3-1.7b")),
    ("sglang:x", ("unknown engine prefix 'sglang'", "vllm:MODEL, transformers:MODEL")),
    ("gone.cap", ("no such capture file (gone.cap)", "check the path, or make it")),
    ("checkpoint", ("a folder is not a capture", "vllm:checkpoint or transformers:checkpoint")),
    ("", ("no such capture file",)),
    ("gone.py:f", ("no such file: gone.py",)),
])
def test_an_operand_that_is_nothing_is_said_before_an_engine_starts(operand, says, good, tmp_path, monkeypatch, fails):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "config.json").write_text("{}")
    for other in (good, "vllm:qwen3-tiny"):
        fails("compare", other, operand, *(["--inputs", "gone.py:i"] if "py:" in operand else []), says=says)


def test_a_file_with_a_colon_in_its_name_is_a_file(good, tmp_path, monkeypatch, capsys):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    Path(good).rename("run:1")
    assert main(["compare", "run:1", "run:1"]) == 0


# ---- what differs
@pytest.mark.parametrize(("change", "says"), [
    (dict(name="other"), "(m and other): capture both sides from the same checkpoint"),
    (dict(layers=3), "(m with 1 and with 3 layers): capture both sides with the same --layers"),
    (dict(config={"hidden_size": 64}), "(m: hidden_size None and 64)"),
    (dict(), "(m with the same config and other weights): capture both sides with the same --seed"),
])
def test_models_that_differ_say_in_what(change, says, tmp_path, fails):  # noqa: F811
    one, two = made("vllm"), made("transformers")
    for name, value in {"fingerprint": "another", **change}.items():
        setattr(two.header.model, name, value)
    for name, capture in (("one", one), ("two", two)):
        write_capture(tmp_path / name, capture)
    fails("compare", str(tmp_path / "one"), str(tmp_path / "two"), says=("different models or weights", says))


def test_kinds_are_named_as_people_do(tmp_path, fails):  # noqa: F811
    for name, kind in (("one", "dumps"), ("two", "vllm")):
        write_capture(tmp_path / name, made(kind))
    fails("compare", str(tmp_path / "one"), str(tmp_path / "two"), says=("a capture of a dumped graph and one of a vLLM model",))


def test_hub_names_are_not_fetched(tmp_path, fails):  # noqa: F811
    out = str(tmp_path / "x.cap")
    fails("capture", "transformers", "Qwen/Qwen3-1.7B", "-o", out, says=("not fetched", "qwen3-1.7b is its config, shipped, with made-up weights"))
    fails("capture", "transformers", "org/Nothing", "-o", out, says=("not fetched", "shipped are configs with made-up weights", "qwen3-tiny"))


def test_inputs_as_a_dict(functions, fails):  # noqa: F811
    functions.write_text(functions.read_text() + "\ndef named(seed): return {'x': inputs(seed)[0]}\n")
    fails("compare", f"{functions}:good", f"{functions}:good", "--inputs", f"{functions}:named", says=("returns a dict", "return a tuple"))


def test_thirty_graphs_are_not_all_listed(tmp_path, fails):  # noqa: F811
    for i in range(30):
        (tmp_path / f"{i:02}.py").write_text(f"# AOT ID: ['{i}_inference']\nx = {i}\nasync_compile = AsyncCompile()\ndef call(args):\n    arg0_1, = args\n")
    said = fails("capture", "dumps", str(tmp_path), "-o", str(tmp_path / "x.cap"), says=("30 graphs in this dump", "--graph N, 1 to 30", "and 24 more", "0 kernels"))
    assert len(said) < 800 + len(str(tmp_path))


# ---- numbers without end
@pytest.mark.parametrize("seed", [2**63, 2**64 - 1, 10**23 - 1, 10**2000])
def test_a_seed_has_63_bits(seed, functions, tmp_path, fails):  # noqa: F811
    out, says = str(tmp_path / "x.cap"), ("a seed is a whole number from 0 to 2**63 - 1",)
    fails("capture", "function", f"{functions}:good", "--inputs", f"{functions}:inputs", "--seed", str(seed), "-o", out, says=says)
    fails("compare", f"{functions}:good", f"{functions}:good", "--inputs", f"{functions}:inputs", "--seed", str(seed), says=says)
    fails("capture", "transformers", "qwen3-tiny", "--seed", str(seed), "-o", out, says=says)
    with pytest.raises(GraphdiffError, match="a seed is a whole number"):
        pipeline.capture_dumps(tmp_path, Path(out), seed=seed)


def test_the_last_seed_is_kept(functions, tmp_path):  # noqa: F811
    out = str(tmp_path / "x.cap")
    assert main(["capture", "function", f"{functions}:good", "--inputs", f"{functions}:inputs", "--seed", str(2**63 - 1), "-o", out]) == 0
    assert read_capture(Path(out)).header.probe.seed == 2**63 - 1


@pytest.mark.parametrize("seed", [-1, 1.5, True, "0"])
def test_what_is_no_seed_is_said_in_python_too(seed, functions, tmp_path):  # noqa: F811
    with pytest.raises(GraphdiffError, match="a seed is a whole number"):
        pipeline.capture_function(f"{functions}:good", f"{functions}:inputs", tmp_path / "x.cap", seed=seed)


@pytest.mark.parametrize(("layers", "says"), [(1025, "1 to 1024 layers"), (1000000, "1 to 1024 layers"), (10**20, "1 to 1024 layers"), (10**2000, "1 to 1024 layers")])
def test_layers_have_a_bound(layers, says, tmp_path, fails):  # noqa: F811
    fails("capture", "transformers", "qwen3-tiny", "--layers", str(layers), "-o", str(tmp_path / "x.cap"), says=(says, "give 1 to"))
    fails("compare", "transformers:qwen3-tiny", "transformers:qwen3-tiny", "--layers", str(layers), says=(says, "give 1 to"))
    with pytest.raises(GraphdiffError, match=says):
        pipeline.capture_vllm("qwen3-tiny", tmp_path / "x.cap", layers=layers)


# ---- usage errors
@pytest.mark.parametrize("arguments", [["nonsense"], ["compare"], ["compare", "a", "b", "--seed", "x"], ["compare", "a", "b", "--layers", "0"],
                                       ["compare", "a", "b", "--fail-on", "sometimes"], ["capture", "vllm", "m"], ["show"], ["compare", "a", "b", "--nope"], []])
def test_usage_errors_are_one_line(arguments, capsys):
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.startswith("graphdiff: ") and "--help" in said and "Value error" not in said
