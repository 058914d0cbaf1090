"""Names of values of eager code: the text of the op that forms them, a statement that writes in place, a step of a call."""

import pytest

pytest.importorskip("torch")
from graphdiff import pipeline  # noqa: E402
from graphdiff.findings.listing import listing_of  # noqa: E402
from graphdiff.rules import name_values  # noqa: E402
from graphdiff.rules.words import operand_text  # noqa: E402

CODE = """
import torch
import torch.nn.functional as F
def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(8, 16, generator=g).bfloat16(), torch.randn(16, generator=g).bfloat16()
def chosen(x, w):
    return torch.where(x > 0, x * 1.1, torch.exp(x) - 1)
def in_place(x, w):
    x = x.clone()
    x[:, 1:4] *= w[1:4]
    x[4] += 0.3
    x.mul_(w)
    return x[:, ::2] * 3
def steps(x, w):
    return torch.logsumexp(x, -1), x ** 3, torch.addcmul(x, x, w), torch.add(x, w, alpha=0.3)
def looped(x, w):
    for _ in range(3):
        x = x * w
    return x
def changed(x, w):
    return x + w * 0.5, torch.softmax(torch.exp(x) * 1.3, -1)
"""

NAMES = {
    "chosen": ["x * 1.1", "torch.exp(x)", "torch.exp(x) - 1"],
    "in_place": ["x[:, 1:4] *= w[1:4]", "x[4] += 0.3", "x.mul_(w)", "x[:, ::2] * 3"],
    "steps": [f"{op} in torch.logsumexp(x, -1)" for op in ("sub", "exp", "sum", "log")] + ["torch.logsumexp(x, -1)", "mul in x ** 3", "x ** 3",
              "torch.addcmul(x, x, w)", "torch.add(x, w, alpha=0.3)"],
    "looped": ["x * w"],
    "changed": ["w * 0.5", "x + w * 0.5", "torch.exp(x)", "torch.exp(x) * 1.3 read by softmax", "softmax(torch.exp(x) * 1.3)"],
}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    made = tmp_path_factory.mktemp("functions") / "functions.py"
    made.write_text(CODE)
    return made


@pytest.mark.parametrize("function", NAMES)
def test_what_show_calls_each_rounding(file, function):
    capture = pipeline.function_capture(f"{file}:{function}", f"{file}:inputs", 0)
    assert [r["value"] for r in listing_of(capture, name_values)["roundings"]] == NAMES[function]


@pytest.mark.parametrize(("text", "slot", "op", "name"), [
    ("a * b", 0, "mul", "a"), ("a * b", 1, "mul", "b"), ("2 * b", 0, "mul", "b"), ("a += b.float()", 1, "add", "b"),
    ("torch.mul(a, b)", 1, "mul", "b"), ("a.mul(b)", 0, "mul", "a"), ("a.mul(b)", 1, "mul", "b"), ("self.weight.mul(b)", 0, "mul", "self.weight"),
    ("self.act(a)", 0, "", "a"), ("torch.softmax(a + 1, -1)", 0, "", "a + 1"), ("F.rms_norm(a, (16,), w)", 0, "", ""), ("a ** 3", 1, "", "a"),
    ("torch.addcmul(a, b, c)", 0, "", ""), ("a b", 0, "add", ""),
])
def test_the_text_of_an_operand_is_known_or_empty(text, slot, op, name):
    assert operand_text(text, slot, op) == name
