"""Mixtures of experts: counts, grouped matmuls, and transformers' models with each of its ways to run experts."""

import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from compiled_functions import assert_equal, assert_near, cuda, native  # noqa: E402
from eager_bits import EachOp  # noqa: E402
from eager_rules import T, assert_same, ops_of, real, refused  # noqa: E402

from graphdiff.capture.models import resolve_model  # noqa: E402
from graphdiff.capture.probe_tokens import probe_tokens  # noqa: E402
from graphdiff.capture.transformers import load_model, record_training  # noqa: E402
from graphdiff.errors import GraphdiffError  # noqa: E402
from graphdiff.pipeline import capture_transformers, compare_captures  # noqa: E402
from graphdiff.store import read_capture  # noqa: E402

pytestmark = pytest.mark.filterwarnings("error:Dynamo detected a call:UserWarning")
SMALL = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
         "num_experts_per_tok": 2}
MODELS = {
    "qwen3moe": {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "head_dim": 16, "num_experts": 4, "moe_intermediate_size": 64,
                 "decoder_sparse_step": 1, "norm_topk_prob": True, "mlp_only_layers": [], "hidden_act": "silu"},
    "mixtral": {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 4, "hidden_act": "silu"},
    "gptoss": {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "head_dim": 16, "num_local_experts": 4, "sliding_window": 4},
}
FORMS = {
    "experts": ((16, 16), (3, 16, 8)), "columns": ((3, 16, 8), (8, 16)), "sums": ((8, 16), (16, 16)), "batches": ((3, 8, 16), (3, 16, 8)),
    "odd width": ((16, 16), (3, 16, 10)),
}


def operands(form, dtype):
    a, b = (real(*shape, seed=i, dtype=dtype) for i, shape in enumerate(FORMS[form]))
    if form == "odd width":
        b = real(3, 10, 16, dtype=dtype).transpose(-1, -2)
    return a, b


# ---- the ops
@pytest.mark.parametrize("ends", [[5, 7, 16], [0, 16, 16]])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_matmuls_by_groups(form, ends, dtype):
    offs = None if form == "batches" else T(ends, dtype=torch.int32)
    recorded = assert_same(lambda a, b: torch._grouped_mm(a, b, offs=offs) * 2, *operands(form, dtype), flips=0.02)
    assert ops_of(recorded).count("round") == (2 if dtype == torch.bfloat16 else 0)


def test_groups_that_end_early():
    a, b = operands("experts", torch.bfloat16)
    refused(lambda a, b: torch._grouped_mm(a, b, offs=T([2, 3, 5], dtype=torch.int32)), a, b, match="ends early")


def test_counts_are_those_of_the_run():
    x = real(6, 10)
    for function in (lambda x: torch.histc(x, 5, -1, 1) * x[0, :5], lambda x: torch.histc(x, 7) * 2, lambda x: torch.histc(x.argmax(-1).float(), 10, 0, 9) * x[0]):
        recorded = assert_same(function, x, near=0)
        assert any(n.op == "leaf" and n.dynamic and n.attrs["name"] == "const" for n in recorded.program.nodes)


def test_zeros_that_are_added_to_form_no_value():
    """index_add_ into zeros, group by group, as eager experts do: the first term of each place is itself."""
    def function(x, y):
        out = torch.zeros_like(x)
        for i in range(3):
            out.index_add_(0, T([i, i + 1]), y[2 * i:2 * i + 2])
        return out * 2

    x, y = real(4, 8, dtype=torch.bfloat16), real(6, 8, seed=1, dtype=torch.bfloat16)
    recorded = assert_same(function, x, y, flips=0)
    assert sum(n.size for n in recorded.program.nodes if n.op == "add") == 2 * 8


def routed(x, w, choice):
    order = torch.sort(choice.reshape(-1), stable=True)
    counts = torch.histc(order[0].float(), bins=3, min=0, max=2)
    y = torch._grouped_mm(x[order[1] // 2], w, offs=torch.cumsum(counts, 0, dtype=torch.int32))
    return torch.nn.functional.silu(y) * 1.5, counts * x[0, :3]


def test_compiled_experts_have_the_kernels_bits():
    choice = T([[0, 1], [1, 2], [1, 0], [0, 2]])
    args = real(4, 64, dtype=torch.bfloat16), real(3, 64, 32, dtype=torch.bfloat16), choice
    program, pairs = native(routed, *args)
    assert_equal(pairs, 2, flips=0.01)
    assert sum(n.op == "mm" for n in program.nodes) == 3
    program, pairs, code = cuda(routed, *args)
    assert "extern_kernels._grouped_mm(" in code and "aten.histc" in code
    assert_near(pairs, count=2)
    assert sum(n.op == "mm" for n in program.nodes) == 3


# ---- the models
@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    """name -> its config, with transformers' default experts and with eager ones."""
    folder, made = tmp_path_factory.mktemp("experts"), {}
    for name, own in MODELS.items():
        for kind in ("default", "eager"):
            file = folder / kind / f"{name}.json"
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps({**SMALL, **own} | ({"experts_implementation": "eager"} if kind == "eager" else {})))
            made[name, kind] = str(file)
    return made


@pytest.fixture(scope="module")
def captured(configs, tmp_path_factory):
    folder, kept = tmp_path_factory.mktemp("captures"), {}

    def capture(name, kind, **options):
        key = (name, kind, *options.items())
        if key not in kept:
            capture_transformers(configs[name, kind], folder / f"{len(kept)}.cap", attn="eager", **options)
            kept[key] = read_capture(folder / f"{len(kept)}.cap")
        return kept[key]

    return capture


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["default", "eager"])
def test_a_recorded_models_numbers(configs, name, kind):
    """Op by op, on what each op really got: bits, but for sums of matmuls and the exp of torch's own softmax in float32."""
    model = resolve_model(configs[name, kind])
    tokens, positions = probe_tokens(model.config, 8)
    base, ids, places = load_model(model, attn="eager", autocast=None).base_model, T([tokens]), T([positions])
    watched = EachOp({})
    with torch.no_grad(), watched:
        base(input_ids=ids, position_ids=places, use_cache=False)
    ops = {o.op for o in watched.found}
    assert ("aten._grouped_mm" in ops) == ("aten.histc" in ops) == (kind == "default") and ("aten.index_add_" in ops) == (kind == "eager")
    wrong = [o for o in watched.found if o.differing]
    assert all(o.anchor and o.differing <= o.elements / 100 and o.worst <= 1 or o.op == "aten._softmax" and o.dtype == "float32" and o.worst <= 2
               for o in wrong), wrong
    assert sum(o.elements for o in watched.found if o.computes) > 10_000


@pytest.mark.parametrize("name", MODELS)
def test_two_ways_to_run_experts(captured, name):
    """Where router weights are BF16 both round each weighted output and their sum; Mixtral's are float32, and then only
    eager experts round the weighted outputs: index_add_ takes terms of its own format."""
    report = compare_captures(captured(name, "eager"), captured(name, "default"))
    if name != "mixtral":
        assert report.verdict == "same" and report.exit_status == 0
        return
    assert report.verdict == "moved" and {r.rule for r in report.regions} == {"expert-sum"}
    moved = [m for r in report.regions for m in r.moved]
    assert moved and all(m.rounded_in == "inference" and m.value.endswith("* router weight") for m in moved)
    assert all(r.witness.transplant_bitwise for r in report.regions)


@pytest.mark.parametrize("target", ["native", "cuda:90"])
def test_compiled_training_of_experts(captured, target):
    capture = captured("mixtral", "default", compile=True, target=target, layers=1)
    report = compare_captures(capture, captured("mixtral", "default", layers=1))
    assert report.verdict == "moved" and all(m.rounded_in == "training" for r in report.regions for m in r.moved)
    assert sum(n.op == "mm" and n.site >= 0 and "grouped_mm" in capture.program.site(i).kernel for i, n in enumerate(capture.program.nodes)) >= 4


def test_a_compiled_backward_of_experts_with_biases(captured):
    """Its code passes what the forward saved to ATen alone, and never tells the sizes."""
    capture = captured("gptoss", "default", compile=True, backward=True, layers=1)
    assert any(o.name.endswith("experts.down_proj") for o in capture.program.outputs)


# ---- what cannot be
@pytest.mark.parametrize("target", ["native", "cuda:90"])
def test_eager_experts_are_not_one_graph(configs, tmp_path, target):
    with pytest.raises(GraphdiffError, match="cannot trace this (model|function) as one graph") as error:
        capture_transformers(configs["mixtral", "eager"], tmp_path / "x.cap", attn="eager", compile=True, target=target)
    assert "for expert_idx in expert_hit" in error.value.fix and "grouped_mm" in error.value.fix and "\n" not in str(error.value)


def test_compiled_experts_of_float32_weights(configs, tmp_path):
    """Eagerly they are one grouped matmul in float32, which autocast leaves alone."""
    with pytest.raises(GraphdiffError, match="cannot trace this model as one graph") as error:
        capture_transformers(configs["mixtral", "default"], tmp_path / "x.cap", attn="eager", compile=True, autocast="bfloat16", layers=1)
    assert "leave out --autocast" in error.value.fix and "\n" not in str(error.value)
    capture_transformers(configs["mixtral", "default"], tmp_path / "x.cap", attn="eager", autocast="bfloat16", layers=1)
    program = read_capture(tmp_path / "x.cap").program
    groups = {i for i, n in enumerate(program.nodes) if n.op == "mm" and program.site(i).kernel == "aten._grouped_mm"}
    assert groups and not any(n.op == "round" for n in program.nodes for o in n.operands if groups & set(o.nodes))


def test_attention_that_a_model_has_not(configs, tmp_path):
    with pytest.raises(GraphdiffError, match="no sdpa attention for this model: GptOssForCausalLM does not support") as error:
        capture_transformers(configs["gptoss", "default"], tmp_path / "x.cap")
    assert "--attn eager" in error.value.fix and "\n" not in str(error.value)


def test_a_grouped_product_as_a_probe_sees_it(configs):
    """Each group is an anchor of its own, rounded once."""
    model = resolve_model(configs["mixtral", "default"], layers=1)
    recorded = record_training(model, *probe_tokens(model.config, 8), attn="eager").builder.program
    groups = [i for i, n in enumerate(recorded.nodes) if n.op == "mm" and recorded.site(i).kernel == "aten._grouped_mm"]
    readers = [n.op for n in recorded.nodes if any(g in o.nodes for g in groups for o in n.operands)]
    assert len(groups) > 2 and set(readers) == {"round"} and len(readers) == 2
