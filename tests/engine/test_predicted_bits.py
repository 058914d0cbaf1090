"""What a program predicts for eager torch is what eager torch computes, bit for bit, given the same anchors."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from graphdiff.capture.models import resolve_model  # noqa: E402
from graphdiff.capture.probe_tokens import probe_tokens  # noqa: E402
from graphdiff.lower import aten  # noqa: E402
from graphdiff.program import Evaluation, Options  # noqa: E402
from graphdiff.program.ops import Arithmetic  # noqa: E402

ANCHORS = ("aten.mm", "aten.addmm", "aten.bmm", "aten.embedding", "aten._scaled_dot_product")


def through_torch(function):
    return lambda x: function(torch.from_numpy(np.array(x))).numpy()


def torch_sum(x, axes):
    return torch.from_numpy(np.array(x)).sum(dim=axes).numpy()


TORCH = Arithmetic(
    unary={name: through_torch(getattr(torch, name)) for name in
           ("exp", "rsqrt", "sqrt", "sin", "cos", "tanh", "log", "erf", "reciprocal")},
    sum=torch_sum,
)


class Remembering(aten.Recorder):
    """Keeps the real numbers of every op's output, by the node that holds them."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.real = {}
        kept.append(self)

    def _record(self, func, args, kwargs, out, inputs, outputs, written):
        super()._record(func, args, kwargs, out, inputs, outputs, written)
        for t in outputs:
            if aten.is_float(t):
                operand = self.builder.operand(self.elements(t))
                if operand.form == "whole":
                    self.real[operand.nodes[0]] = t.detach().float().reshape(-1).numpy().copy()


kept = []


@pytest.mark.parametrize("options", [{}, {"attn": "eager"}, {"autocast": "bfloat16"}, {"checkpointing": True}], ids=str)
@pytest.mark.parametrize("name", ["qwen3-tiny", "qwen2-tiny", "llama-tiny"])
def test_every_pointwise_and_norm_value_has_eagers_bits(name, options, monkeypatch):
    from graphdiff.capture.transformers import record_training

    monkeypatch.setattr(aten, "Recorder", Remembering)
    kept.clear()
    model = resolve_model(name)
    options = {"attn": "sdpa", **options}
    record_training(model, *probe_tokens(model.config, 8), **options)
    (recorder,) = kept
    program = recorder.builder.program
    pins = {n: real for n, real in recorder.real.items() if program.site(n).kernel.startswith(ANCHORS)}
    evaluation = Evaluation(program, recorder.builder.leaf_bits, Options(pins=pins, arithmetic=TORCH))
    judged = [n for n in recorder.real if n not in pins and program.nodes[n].kind != "leaf"]
    wrong = {n: int((evaluation.flat(n) != recorder.real[n]).sum()) for n in judged
             if not np.array_equal(evaluation.flat(n), recorder.real[n], equal_nan=True)}
    softmax = [n for n in wrong if program.site(n).kernel == "aten._softmax" and program.nodes[n].op != "round"]
    for n in softmax:
        # Inside one float32 op with no rounding: torch's vectorised softmax has an exp of its own.
        np.testing.assert_array_max_ulp(evaluation.flat(n), recorder.real[n], 4)
    assert len(judged) > 50 and len(softmax) <= (2 if options["attn"] == "eager" else 0)
    assert set(wrong) == set(softmax), [(n, wrong[n], program.nodes[n].size, program.nodes[n].op, program.site(n).name, program.site(n).text)
                                        for n in wrong if n not in softmax]
