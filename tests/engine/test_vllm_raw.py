"""The real engine: what it compiles for CUDA on a machine with no GPU, in this process and in others."""

import json
import os
import subprocess
import sys
import time

import pytest

from graphdiff.errors import GraphdiffError

pytestmark = pytest.mark.engine
pytest.importorskip("vllm")

# Per piece of a model with two layers: before the first attention, between, after the last.
KERNELS = [2, 4, 3]


@pytest.fixture(scope="module")
def raws():
    """Captures of several models, one after another in this one process."""
    from graphdiff.capture.models import resolve_model
    from graphdiff.capture.vllm.run import capture_engine

    made = {}

    def capture(name, **options):
        key = (name, repr(options))
        if key not in made:
            made[key] = capture_engine(resolve_model(name), **options)
        return made[key]

    return capture


@pytest.mark.parametrize("name", ["qwen3-tiny", "qwen2-tiny", "llama-tiny"])
def test_pieces_are_cuda_code_and_wired_by_the_split_graph(raws, name):
    raw = raws(name)
    assert raw.mode == "VLLM_COMPILE" and raw.target == "cuda:90"
    assert [raw.pieces[p][0].kernels for p in raw.pieces] == KERNELS
    assert all(p[0].bucket == "dynamic" and p[0].tokens == (1, 256) for p in raw.pieces.values())
    assert all("cc=90" in p[0].code.text and "onednn" not in p[0].code.text for p in raw.pieces.values())
    calls = [node for node in raw.top if node.op == "call_module"]
    assert [c.name for c in calls] == ["submod_0", "submod_1", "submod_2", "submod_3", "submod_4"]
    assert {c.name for c in calls} == set(raw.pieces) | set(raw.splitting)
    for call in calls:
        if call.name in raw.pieces:
            assert len(call.args) == len(raw.pieces[call.name][0].code.inputs)


def test_attention_is_an_anchor_with_its_layer(raws):
    raw = raws("qwen3-tiny")
    for submodule, nodes in raw.splitting.items():
        attention = next(node for node in nodes if node.target == "vllm.unified_attention_with_output")
        call = next(node for node in raw.top if node.name == submodule)
        placeholders = [node.name for node in nodes if node.op == "placeholder"]
        bound = dict(zip(placeholders, call.args, strict=True))
        layer = next(i for i in raw.inputs if i.name == bound[attention.args[4].name].name)
        assert layer.kind == "other" and layer.value.endswith(".self_attn.attn")


def test_parameters_are_the_merged_ones_by_dotted_name(raws):
    from safetensors.torch import load_file
    import torch

    from graphdiff.capture.models import resolve_model

    raw, weights = raws("qwen3-tiny"), load_file(resolve_model("qwen3-tiny").path / "model.safetensors")
    by_path = {raw.parameter_names[name]: tensor for name, tensor in raw.parameters.items()}
    assert set(by_path) == {i.path for i in raw.of_kind("parameter")}
    merged = torch.cat([weights[f"model.layers.0.self_attn.{p}_proj.weight"] for p in "qkv"])
    assert by_path["layers.0.self_attn.qkv_proj.weight"].equal(merged)
    assert by_path["layers.0.self_attn.rotary_emb.cos_sin_cache"].shape == (512, 64)
    assert {i.path for i in raw.of_kind("input")} == {"input_ids", "positions"}


def test_kernels_lead_to_model_lines_and_modules(raws):
    piece = raws("qwen3-tiny").pieces["submod_2"][0].code
    named = {kernel for kernel in piece.kernel_sources if f"def {kernel}(" in piece.text}
    assert len(named) == 4
    combo = next(nodes for nodes in piece.kernel_sources.values() if "cat_2" in nodes)
    assert all(piece.sources[node][0].endswith("models/qwen3.py") for node in combo)
    assert {piece.modules[n] for n in combo} >= {"layers.1.self_attn.q_norm", "layers.1.self_attn.rotary_emb"}
    assert piece.layer_sources["silu"][0].endswith("layers/activation.py")
    assert piece.sources["silu"][0].endswith("models/qwen2.py")


def test_two_captures_of_a_model_are_equal(raws):
    first, second = raws("qwen3-tiny"), raws("qwen3-tiny", progress=lambda line: None)
    assert first is not second and first.top == second.top and first.inputs == second.inputs
    for name, pieces in first.pieces.items():
        assert _kernels(pieces[0].code.text) == _kernels(second.pieces[name][0].code.text)


def test_switches_of_the_capture(raws):
    raw = raws("qwen3-tiny", compile_sizes=[1], combo_kernels=False, target="cuda:80")
    assert [[p.bucket for p in pieces] for pieces in raw.pieces.values()] == [["dynamic", 1]] * 3
    assert raw.pieces["submod_0"][0].kernels == 3 and "cc=80" in raw.pieces["submod_0"][0].code.text
    assert any("max_autotune" in line for line in raw.differences)
    assert any("Combo kernels were switched off" in line for line in raw.differences)


def test_an_eager_engine_has_nothing_to_capture():
    from graphdiff.capture.models import resolve_model
    from graphdiff.capture.vllm.run import capture_engine

    with pytest.raises(GraphdiffError, match="nothing was captured: the engine runs eagerly") as caught:
        capture_engine(resolve_model("qwen3-tiny"), enforce_eager=True)
    assert "enforce_eager" in caught.value.fix


def test_a_failing_callback_ends_the_start_with_its_error():
    from graphdiff.capture.models import resolve_model
    from graphdiff.capture.vllm.run import capture_engine

    def fail(raw):
        raise GraphdiffError("cannot lower this", where="kernel 3", fix="wait")

    with pytest.raises(GraphdiffError, match="cannot lower this"):
        capture_engine(resolve_model("qwen3-tiny"), on_captured=fail)


def test_this_process_is_left_as_it_was(raws):
    import torch

    raws("qwen3-tiny")
    assert "VLLM_ENABLE_V1_MULTIPROCESSING" not in os.environ and "VLLM_CACHE_ROOT" not in os.environ
    threads = torch.get_num_threads()
    torch.set_num_threads(threads)
    assert torch.get_num_threads() == threads


USER = """
import os
from graphdiff.capture.models import resolve_model
from vllm import LLM, SamplingParams

def main():
    llm = LLM(str(resolve_model("qwen3-tiny").path), skip_tokenizer_init=True, dtype="bfloat16", max_model_len=128,
              max_num_batched_tokens=256, max_num_seqs=4, seed=0)
    prompt = {"prompt_token_ids": list(range(3, 30))}
    out = llm.generate([prompt], SamplingParams(max_tokens=2, temperature=0, detokenize=False), use_tqdm=False)
    print("GENERATED", len(out[0].outputs[0].token_ids))

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("asked", [{}, {"target": "native"}], ids=["cuda", "native"])
def test_somebodys_engine_is_captured_in_its_core_process_and_runs_on(tmp_path, asked):
    script, output = tmp_path / "user.py", tmp_path / "out.capture"
    script.write_text(USER)
    (tmp_path / "request.json").write_text(json.dumps({"output": str(output), **asked}))
    environment = {
        **os.environ,
        "GRAPHDIFF_CAPTURE": str(tmp_path / "request.json"),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CACHE_ROOT": str(tmp_path / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, timeout=600)
    assert "GENERATED 2" in run.stdout, run.stderr[-2000:]
    status = json.loads((tmp_path / "out.capture.status.json").read_text())
    assert status["ok"] and output.stat().st_size > 0, status


def test_a_child_process_writes_the_capture(tmp_path):
    from graphdiff.capture.models import resolve_model
    from graphdiff.capture.vllm.run import write_engine_capture

    output = tmp_path / "out.capture"
    started = time.monotonic()
    write_engine_capture(resolve_model("qwen3-tiny"), output, in_process=False)
    assert output.stat().st_size > 0 and time.monotonic() - started < 300
    assert [path.name for path in tmp_path.iterdir()] == ["out.capture"]


def _kernels(text):
    """The kernels of an output code, without paths and hashes."""
    return [part.split("def ", 1)[1].split("'''", 1)[0] for part in text.split("@triton.jit")[1:]]
