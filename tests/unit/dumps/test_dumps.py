"""`capture dumps` on what torch really wrote (fixtures/dumps, made by tools/make_dump_fixtures.py), with no torch."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from graphdiff.capture.dumps import pick, read_dumps, record_dump
from graphdiff.capture.dumps.graph import DumpedGraph
from graphdiff.capture.dumps.logs import read_texts, read_trace
from graphdiff.capture.dumps.signature import signature_of
from graphdiff.errors import GraphdiffError
from graphdiff.pipeline import capture_dumps, compare_captures, dumps_capture, show
from graphdiff.program.dtypes import decode, encode
from graphdiff.store import read_capture

ROOT = Path(__file__).resolve().parents[3]
DUMPS = ROOT / "fixtures" / "dumps"
TRACE = "dedicated_log_torch_trace_fixture.log"


def refusal(path, **options):
    with pytest.raises(GraphdiffError) as caught:
        dumps_capture(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def output_code():
    return pick(read_dumps(DUMPS / "inference"), None).text


def test_a_trace_tells_its_versions_names_places_and_options():
    capture = dumps_capture(DUMPS / "inference")
    h = capture.header
    assert (h.kind, h.versions, h.target) == ("dumps", {"torch": "2.13.0+cpu"}, "cuda:90")
    assert h.model.name == "dump_functions.py:norm" and h.outputs == ["output0", "output1"]
    assert [n.attrs["name"] for n in capture.program.nodes if n.op == "leaf"] == ["residual", "x", "weight"]
    assert [k.kind for k in h.kernels] == ["triton"]
    last = capture.program.site(len(capture.program.nodes) - 1)
    assert last.file.endswith("dump_functions.py") and last.text.startswith("return weight * y")
    assert "weights and inputs" in h.not_captured


def test_show_and_storage(tmp_path):
    capture_dumps(DUMPS / "inference", tmp_path / "a.capture")
    listing = show(tmp_path / "a.capture")
    assert len(listing["roundings"]) >= 1 and listing["capture"]["kind"] == "dumps"
    again = tmp_path / "b.capture"
    capture_dumps(DUMPS / "inference", again)
    assert again.read_bytes() == (tmp_path / "a.capture").read_bytes(), "same dump, same stand-ins"
    capture_dumps(DUMPS / "inference", again, seed=1)
    assert again.read_bytes() != (tmp_path / "a.capture").read_bytes()


def test_logs_say_the_same_as_the_trace_without_names():
    trace, logs = dumps_capture(DUMPS / "inference"), dumps_capture(DUMPS / "inference-logs")
    assert [n.attrs["name"] for n in logs.program.nodes if n.op == "leaf"] == ["arg0", "arg1", "arg2"]
    assert [(n.op, n.shape, n.dtype) for n in logs.program.nodes] == [(n.op, n.shape, n.dtype) for n in trace.program.nodes]
    assert {s.file for s in logs.program.sites} == {s.file for s in trace.program.sites}
    assert "the version of torch" in logs.header.not_captured
    assert not compare_captures(trace, logs).summary.moved.training


def test_training_forward_is_chosen_and_its_saved_tensors_are_no_results():
    dumps = read_dumps(DUMPS / "training")
    assert [g.kind for g in dumps.graphs] == ["forward", "backward"]
    training = dumps_capture(DUMPS / "training")
    assert training.header.outputs == ["output0", "output1"]
    report = compare_captures(dumps_capture(DUMPS / "inference"), training)
    assert (report.summary.moved.training, report.summary.moved.inference) == (1, 0)
    assert report.regions[0].witness.transplant_bitwise is True
    backward = dumps_capture(DUMPS / "training", graph=2)
    assert "backward" in backward.header.mode and len(backward.header.outputs) >= 2


def test_several_graphs_are_listed_and_chosen_by_number():
    message = refusal(DUMPS / "several")
    assert "2 graphs" in message and "1 inference norm" in message and "2 inference mlp" in message and "--graph" in message
    assert dumps_capture(DUMPS / "several", graph=2).header.model.name == "dump_functions.py:mlp"
    assert "no graph 3" in refusal(DUMPS / "several", graph=3)


def test_the_same_code_twice_is_one_graph(tmp_path):
    shutil.copytree(DUMPS / "inference", tmp_path / "rank0")
    shutil.copytree(DUMPS / "inference-logs", tmp_path / "logs")
    cache = tmp_path / "cache" / "xy"
    cache.mkdir(parents=True)
    (cache / "cxy.py").write_text(output_code())
    (cache / "kernel.py").write_text("import triton\n")
    (cache / "binary").write_bytes(b"\x80\x04\0\0pickle")
    (graph,) = read_dumps(tmp_path).graphs
    assert len(graph.also) == 2 and graph.torch == "2.13.0+cpu"


def test_code_for_a_cpu_is_refused_by_name():
    assert "C++ code for a CPU" in refusal(DUMPS / "cpu")


def test_a_graph_of_the_sampler_is_passed_over(tmp_path):
    text = (DUMPS / "several" / TRACE).read_text()
    dumps = read_dumps(DUMPS / "several")
    dumps.graphs[1].dynamo = dumps.graphs[1].dynamo.replace("dump_functions.py", "vllm/v1/sample/ops/topk.py").replace("/tests/support/", "/")
    assert dumps.graphs[1].is_helper and "sampler helper" in dumps.graphs[1].title()
    assert pick(dumps, None) is dumps.graphs[0]
    assert text


# ---- bad input
def test_nothing_there(tmp_path):
    assert "no such folder" in refusal(tmp_path / "none")
    assert "empty" in refusal(tmp_path)
    (tmp_path / "notes.txt").write_text("hello\n")
    assert "no output code of Inductor in 1 files" in refusal(tmp_path)
    (tmp_path / "graph.py").write_text("class <lambda>(torch.nn.Module):\n    def forward(self, x):\n        return x\n")
    assert "FX graphs" in refusal(tmp_path)
    (tmp_path / "graph.py").unlink()
    (tmp_path / "artifact").write_bytes(b"\0\0\0")
    assert "pickled cache entries are never opened" in refusal(tmp_path)


def test_a_trace_of_something_else_and_warm_caches(tmp_path):
    lines = (DUMPS / "inference" / TRACE).read_text().split("\n")
    cut = next(i for i, line in enumerate(lines) if '{"dynamo_output_graph"' in line)
    (tmp_path / TRACE).write_text("\n".join(lines[:cut]) + "\n")
    assert "no compiled graph" in refusal(tmp_path)
    warm = next(i for i, line in enumerate(lines) if '{"inductor_output_code"' in line)
    (tmp_path / TRACE).write_text("\n".join(lines[:warm]) + "\n")
    assert "no output code" in refusal(tmp_path) and "CACHES" in refusal(tmp_path)


@pytest.mark.parametrize("part", [0.05, 0.3, 0.6, 0.9, 0.95])
def test_a_truncated_trace(tmp_path, part):
    text = (DUMPS / "inference" / TRACE).read_text()
    (tmp_path / TRACE).write_text(text[: int(len(text) * part)])
    assert any(word in refusal(tmp_path) for word in ("cut", "no compiled graph", "no output code"))


def test_a_trace_cut_after_the_code_says_so(tmp_path):
    text = (DUMPS / "inference" / TRACE).read_text()
    (tmp_path / TRACE).write_text(text[:-30])
    assert any("cut at its end" in m for m in dumps_capture(tmp_path).header.not_captured)


@pytest.mark.parametrize("part", [0.02, 0.2, 0.5, 0.8])
def test_a_kernel_file_cut_in_half(tmp_path, part):
    text = output_code()
    (tmp_path / "code.py").write_text("# AOT ID: ['0_inference']\n" + text[: int(len(text) * part)])
    assert "cut" in refusal(tmp_path)


def test_logs_cut_in_the_middle(tmp_path):
    text = (DUMPS / "inference-logs" / "torch_logs.txt").read_text()
    (tmp_path / "log.txt").write_text(text[: text.index("def call")])
    assert "cut" in refusal(tmp_path)


def test_an_unknown_torch(tmp_path):
    text = (DUMPS / "inference" / TRACE).read_text()
    (tmp_path / TRACE).write_text(text.replace("2.13.0+cpu", "2.5.1+cu124"))
    message = refusal(tmp_path)
    assert "2.5.1" in message and "2.13" in message and "--any-torch" in message


@pytest.mark.parametrize(
    "old, new",
    [
        ("assert_size_stride(arg0_1, (4, 64), (64, 1)", "assert_size_stride(arg0_1, (1000000, 1000000), (1000000, 1)"),
        ("empty_strided_cuda((4, 64), (64, 1)", "empty_strided_cuda((99999999999, 64), (64, 1)"),
        ("rand_strided((4, 64)", "rand_strided((4, -64)"),
        (", dtype=torch.bfloat16)", ", dtype=torch.complex64)"),
        ("def call(self, args):", "def call(self, args):\n        import os; os.system('false')"),
        ("arg0_1, arg1_1, arg2_1 = args", "arg0_1, arg1_1 = args"),
        ("return (buf2, buf0, )", "return ()"),
    ],
)
def test_hostile_code_is_one_error(tmp_path, old, new):
    text = output_code()
    assert old in text
    (tmp_path / "code.py").write_text(text.replace(old, new))
    if "-64" in new or "complex64" in new or "import os" in new:  # asserts and comments tell the same, statements of no value are refused
        try:
            dumps_capture(tmp_path)
        except GraphdiffError:
            pass
        return
    assert refusal(tmp_path)


def test_the_command(tmp_path):
    def run(*words):
        return subprocess.run([sys.executable, "-m", "graphdiff", "capture", "dumps", *map(str, words)], capture_output=True, text=True, cwd=ROOT)

    done = run(DUMPS / "inference", "-o", tmp_path / "x.capture")
    assert done.returncode == 0 and read_capture(tmp_path / "x.capture").header.kind == "dumps"
    bad = run(DUMPS / "several", "-o", tmp_path / "y.capture")
    assert bad.returncode == 2 and len(bad.stderr.strip().splitlines()) == 1 and "--graph" in bad.stderr


def test_no_torch_is_imported():
    code = f"import sys; from pathlib import Path; from graphdiff.pipeline import dumps_capture; dumps_capture(Path({str(DUMPS / 'inference')!r})); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


WORDS = ["0", "-1", "9" * 20, "(", "[", "args", "None", "1e400", "'x'", "tl.load", "**", "//0", "buf0", "def", "while True:", "\t", "\n", "2**99999"]


@pytest.mark.parametrize("seed", range(40))
def test_changed_code_is_read_or_refused_in_one_line(tmp_path, seed):
    rng = random.Random(seed)
    text = output_code()
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(text))
        text = text[:place] + rng.choice(WORDS) + text[place + rng.randrange(12) :]
    (tmp_path / "code.py").write_text("# AOT ID: ['0_inference']\n" + text)
    try:
        dumps_capture(tmp_path)
    except GraphdiffError as error:
        assert "\n" not in str(error)


def test_a_trace_whose_code_was_edited_says_cut_or_changed(tmp_path):
    """Its length says nothing: only that it is not what was written."""
    (tmp_path / TRACE).write_text((DUMPS / "inference" / TRACE).read_text().replace("tl.full", "tl.fill"))
    assert "was cut or changed" in refusal(tmp_path)


# ---- names
ROT = "    # File: /a/f.py:18 in rot, code: a,b=x.chunk(2,-1); return torch.cat((-b,a),-1)\n    x = 1\n"
ROPE = "    # File: /a/f.py:19 in rope, code: return q*cos+rot(q)*sin, k*cos+rot(k)*sin\n    y = 1\n"


@pytest.mark.parametrize(("graph", "name"), [
    (ROT + ROPE + ROT, "f.py:rope"), (ROPE, "f.py:rope"), (ROT + ROPE.replace("rot(", "("), ""), ("", ""),
    (ROPE.replace("rot(q)", "rope(q)").replace("rot(k)", "1"), "f.py:rope"),
])
def test_a_log_is_named_after_the_function_that_calls_the_others_or_not_at_all(graph, name):
    """Each op has its innermost function: the first may be a helper."""
    assert DumpedGraph("", "log", "TORCH_LOGS", post_grad=graph).function == name
    assert DumpedGraph("", "log", "TORCH_LOGS", dynamo=graph, post_grad="# File: /a/f.py:1 in other, code: x" if graph else "").function == name


def test_a_trace_is_named_after_the_frame_that_was_compiled(tmp_path):
    text = (DUMPS / "inference" / TRACE).read_text()
    assert '"name": "norm", "filename": 1}]' in text
    (tmp_path / TRACE).write_text(text.replace('"name": "norm", "filename": 1}]', '"name": "outer", "filename": 1}]'))
    assert dumps_capture(tmp_path).header.model.name == "dump_functions.py:outer"
    (tmp_path / TRACE).write_text(text.replace('"filename": 1}]', '"filename": 1000}]'))
    assert dumps_capture(tmp_path).header.model.name == "dump_functions.py:norm"


# ---- parts
def test_payloads_are_checked_against_their_hash():
    text = (DUMPS / "inference" / TRACE).read_text()
    assert all(e.whole for e in read_trace(text).events)
    changed = read_trace(text.replace("tl.full", "tl.fill"))
    assert [e.name for e in changed.events if not e.whole] == ["inductor_output_code"]


def test_interleaved_processes_are_told_apart():
    head = "V1129 20:05:52.622000 {} torch/_inductor/graph.py:2722] [0/0] [__output_code] {}"
    lines = [head.format(p, t) for t in ("Output code: ", "# AOT ID: ['0_inference']", "x = 1") for p in (7, 8)]
    found = read_texts("\n".join(lines + [head.format(7, "Output code written to: /x.py")]))
    assert [t.text for t in found] == ["# AOT ID: ['0_inference']\nx = 1"] * 2


def test_symbolic_sizes_are_the_tokens_that_were_asked_for():
    text = (ROOT / "fixtures/inductor/qwen3-tiny/submod_4.combo.py.txt").read_text()
    header = """    def forward(self, arg0_1: "bf16[s72, 4, 64][256, 64, 1]cuda:0", arg1_1: "Sym(s72)", arg2_1: "bf16[256, 256][256, 1]cuda:0", \
arg3_1: "bf16[256][1]cuda:0", arg4_1: "bf16[s72, 256][256, 1]cuda:0", arg5_1: "bf16[1024, 256][256, 1]cuda:0", \
arg6_1: "bf16[256, 512][512, 1]cuda:0", arg7_1: "bf16[256][1]cuda:0"):"""
    signature = signature_of(text, 5, "", header)
    assert signature.symbols == {"s72": 5} and signature.arguments[1] == 5
    first = signature.arguments[0]
    assert first.shape == (5, 4, 64) and first.strides == (256, 64, 1) and first.dtype == "bfloat16"
    assert [a.fan_in for a in signature.arguments if not isinstance(a, int)] == [1, 256, 1, 1, 256, 512, 1], "weights are scaled"
    assert signature_of(text, 5, "").symbols == {"s72": 256}, "nothing tells which of the 256 are tokens: as in the example inputs"


@pytest.mark.parametrize("path", sorted((ROOT / "fixtures/inductor").glob("[fs]*s/*.txt")), ids=lambda p: p.name)
def test_fixture_functions_evaluate_on_stand_ins(path):
    graph = pick(read_dumps(path), None)
    recorded, _ = record_dump(graph)
    assert all(0 not in o.operand.shape for o in recorded.program.outputs) and recorded.program.outputs


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float32"])
def test_stand_ins_are_numbers_of_their_format(dtype):
    x = np.random.default_rng(0).standard_normal(200).astype(np.float32)
    back = decode(encode(x, dtype), dtype)
    assert np.abs(back - x).max() < 0.5 and np.array_equal(encode(np.asarray(back, np.float32), dtype), encode(x, dtype))


def test_attention_of_an_engine_is_said_to_be_taken_as_plain():
    """Its scale, window and soft cap are the layer's, which a dump only names."""
    from graphdiff.capture.dumps.record import notes_on
    from graphdiff.capture.dumps.signature import Signature

    def said(text):
        return any("attention is taken as plain" in note for note in notes_on(DumpedGraph(text, "x", "TORCH_TRACE"), Signature((), {}), ()))

    assert said("torch.ops.vllm.unified_attention_with_output.default(buf5, buf7, buf2, buf6, arg9_1)") and not said("extern_kernels.mm(a, b)")
