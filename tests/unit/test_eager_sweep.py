"""Many ops against torch, in float32 and bit by bit in BF16, so that a rule that is wrong in another way would be seen."""

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from eager_rules import (  # noqa: E402
    T, assert_same, numbers, places, predicted, record, results, rows, x, y)

F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:.*(reduce|non-resizable|resize).*:UserWarning")


UNARY = """exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan tanh sinh cosh asin acos atan asinh acosh atanh erf erfc erfinv lgamma floor ceil
trunc neg abs sign sgn reciprocal round frac relu sigmoid square logit positive""".split()
BINARY = """add sub mul div pow maximum minimum fmax fmin atan2 copysign fmod remainder hypot xlogy logaddexp floor_divide rsub
true_divide""".split()
REDUCTIONS = "sum mean amax amin prod logsumexp std var nansum nanmean cumsum cumprod softmax log_softmax".split()
FUNCTIONAL = """silu gelu mish softplus elu celu selu relu6 hardswish hardsigmoid hardtanh leaky_relu logsigmoid softsign tanhshrink
threshold glu softmin normalize""".split()
ELSEWHERE = {"mse_loss": lambda x, y: (F.mse_loss(x, y), F.mse_loss(x, y, reduction="sum"), F.mse_loss(x, y, reduction="none")), "l1_loss": lambda x, y: F.l1_loss(x, y), "lerp": lambda x, y: torch.lerp(x, y, 0.3),
             "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5), "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=0.5),
             "gelu_tanh": lambda x, y: F.gelu(x, approximate="tanh"), "layer_norm": lambda x, y: F.layer_norm(x, (10,), y[0], y[1], 1e-5),
             "rms_norm": lambda x, y: F.rms_norm(x, (10,), y[0], 1e-6), "rms_norm_default": lambda x, y: F.rms_norm(x, (10,)),
             "prelu": lambda x, y: F.prelu(x, y[0]), "clamp": lambda x, y: x.clamp(-0.5, 0.5), "clamp_tensor": lambda x, y: x.clamp(min=y),
             "addmm": lambda x, y: torch.addmm(x[:, :6], x, y.T), "mv": lambda x, y: x @ y[0], "dot": lambda x, y: x[0] @ y[0],
             "outer": lambda x, y: torch.outer(x[0], y[0]), "linear": lambda x, y: F.linear(x, y, y[:, 0]), "bmm": lambda x, y: x[None] @ y.T,
             "topk": lambda x, y: x.topk(3)[0] * y[:, :3], "sort": lambda x, y: x.sort(0)[0], "kthvalue": lambda x, y: x.kthvalue(2)[0],
             "max": lambda x, y: x.max(1)[0], "median": lambda x, y: x.median(1)[0], "std_mean": lambda x, y: torch.std_mean(x, 1),
             "var_one": lambda x, y: x.var(1, correction=0), "cdist": lambda x, y: (x - y).norm(dim=1), "polar": lambda x, y: torch.polar(x.float(), y.float()),
             "roll": lambda x, y: x.roll(2, 1) + y, "gather": lambda x, y: x.gather(1, places),
             "masked_select": lambda x, y: x.masked_select(y > 0), "repeat": lambda x, y: x.repeat(2, 1).repeat_interleave(2, 0),
             "embedding": lambda x, y: F.embedding(rows, x) * y, "unfold": lambda x, y: x.unfold(1, 3, 2) * 2, "index": lambda x, y: x[rows, T([0, 2, 3, 3, 1, 0])],
             "slices": lambda x, y: torch.cat([x[:, 5:], -y[:, :5]], 1), "where": lambda x, y: torch.where(x > y, x, y * 2),
             "copies": lambda x, y: (x * 1).copy_(y).add_(x), "rows": lambda x, y: x.index_copy(0, T([0, 2]), y[:2]),
             "attention": lambda x, y: F.scaled_dot_product_attention(x[None, None].float(), y[None, None].float(), y[None, None].float())}
EAGER_CPU = {"log_softmax", "prod", "logit", "xlogy", "cumprod", "rsub", "logsumexp", "softmin", "rsqrt"}
"""Ops whose BF16 steps differ on a CPU (docs/tricky_cases.md): to a few last places only."""


def named_ops():
    for name in UNARY:
        yield name, lambda x, y, name=name: getattr(torch, name)(DOMAIN.get(name, lambda x: x)(x))
    for name in BINARY:
        yield name, lambda x, y, name=name: getattr(torch, name)(x.abs() if name in ("pow", "xlogy") else x, y.abs() if name == "xlogy" else y)
    for name in REDUCTIONS:
        yield name, lambda x, y, name=name: getattr(torch, name)(x, 1)
    for name in FUNCTIONAL:
        more = (0.3, 2.0) if name == "threshold" else (-1,) if name in ("softmin", "glu") else ()
        yield "F." + name, lambda x, y, name=name, more=more: getattr(F, name)(x, *more)
    yield from ELSEWHERE.items()


DOMAIN = {**dict.fromkeys(("log", "log2", "log10", "log1p", "sqrt", "rsqrt"), lambda x: x.abs() + 0.25), "acosh": lambda x: x.abs() + 1,
          **dict.fromkeys(("asin", "acos", "atanh", "erfinv"), torch.tanh), "logit": lambda x: x.sigmoid() * 0.75 + 0.125}


@pytest.mark.parametrize(("name", "function"), list(named_ops()), ids=lambda v: v if isinstance(v, str) else "")
def test_the_sweep(name, function):
    for dtype in (torch.float32, torch.bfloat16):
        a, b = x.to(dtype), y.to(dtype)
        if dtype == torch.float32 or name.removeprefix("F.") not in EAGER_CPU:
            assert_same(function, a, b, near=2e-5, flips=0.05)
        else:
            for found, t in zip(predicted(record(function, (a, b))), results(function, (a, b))):
                assert np.allclose(found, numbers(t), rtol=0, atol=2**-5 * np.abs(numbers(t)).max())
