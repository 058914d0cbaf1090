"""What tests of the eager recorder's rules share: functions recorded, their predicted numbers, and torch's."""

import math

import numpy as np
import pytest
import torch

from graphdiff.capture.function import Function, record_eager
from graphdiff.errors import GraphdiffError
from graphdiff.program.evaluate import Evaluation

nan, inf = math.nan, math.inf
T = torch.tensor


def real(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def whole(low, high, *shape, seed=0, dtype=torch.int64):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def record(function, args):
    file = getattr(getattr(function, "__code__", None), "co_filename", __file__)  # positions are told in the file of the test
    return record_eager(Function(function, args, tuple(f"a{i}" for i in range(len(args))), file, "f"))


def predicted(recorded):
    evaluation = Evaluation(recorded.program, recorded.bits)
    return [np.asarray(evaluation.output(i), np.float64).reshape(-1) for i in range(len(recorded.program.outputs))]


def numbers(t):
    t = t.detach()
    t = torch.view_as_real(t.resolve_conj()) if t.is_complex() else t.resolve_neg()
    return t.double().numpy().reshape(-1)


def results(function, args):
    out = function(*(a.clone() if isinstance(a, torch.Tensor) else a for a in args))
    return [t for t in (out if isinstance(out, (tuple, list)) else [out]) if t.is_floating_point() or t.is_complex()]


def assert_same(function, *args, near=2e-6, flips=0.02):
    """float32 to `near` of the largest number; BF16 bit by bit, but for a share of last places (an ulp of float32 before it)."""
    recorded = record(function, args)
    wanted = results(function, args)
    assert len(wanted) == len(recorded.program.outputs)
    for found, t in zip(predicted(recorded), wanted):
        real_ = numbers(t)
        assert found.shape == real_.shape
        finite = np.isfinite(real_)
        assert np.array_equal(found[~finite], real_[~finite], equal_nan=True)
        largest = np.abs(real_[finite]).max(initial=0.0)
        apart = np.abs(found[finite] - real_[finite])
        if t.dtype in (torch.bfloat16, torch.float16):
            assert np.all(apart <= 2**-7 * np.abs(real_[finite]) + 1e-30), "more than a last place"
            assert np.count_nonzero(apart) <= flips * apart.size, f"{np.count_nonzero(apart)} of {apart.size} last places"
        else:
            assert np.all(apart <= near * largest), (found[finite][apart > near * largest][:3], real_[finite][apart > near * largest][:3])
    return recorded


def ops_of(recorded):
    return [n.op for n in recorded.program.nodes]


def refused(function, *args, match="no lowering for "):
    with pytest.raises(GraphdiffError, match=match) as error:
        record(function, args)
    assert "raised" not in error.value.what or "rule raised" in error.value.what
    return error.value


x, y, pos = real(6, 10), real(6, 10, seed=5), real(6, 10, seed=9).abs() + 0.5
xb, yb = x.bfloat16(), y.bfloat16()
odd = T([nan, 1.0, -0.0, inf, -inf, 2.5])
odd2 = T([1.0, nan, 0.0, inf, 2.0, -1.0])
rows = whole(0, 6, 6, seed=1)
places = whole(0, 10, 6, 10, seed=1)
