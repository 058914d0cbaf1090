"""Rules of the eager recorder, one by one: the numbers that its program predicts against those that torch computed."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from eager_rules import (  # noqa: E402
    T, assert_same, inf, nan, numbers, odd, odd2, ops_of, places, pos, real, record, refused, rows, whole, x, xb, y, yb)

from graphdiff.errors import GraphdiffError  # noqa: E402

F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:.*(reduce|non-resizable|resize).*:UserWarning")


# ---- writes that add, zeros that are made, fills
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("function", [
    lambda x, y: x.index_put((rows,), y, accumulate=True) * 2,
    lambda x, y: x.clone().index_put_((rows,), y, accumulate=True),
    lambda x, y: x.index_put((rows,), y) * 2,
    lambda x, y: torch.ops.aten._index_put_impl_(x * 1, [T([0, 2])], y[:2], False),
    lambda x, y: torch.ops.aten._index_put_impl_(x * 1, [T([0, 2, 2])], y[:3], True),
    lambda x, y: x.scatter(1, places, y, reduce="add"),
    lambda x, y: x.scatter(1, places[:, :1], y, reduce="multiply"),
    lambda x, y: x.scatter(1, places[:3, :4], 2.5, reduce="add"),
    lambda x, y: x.scatter_add(1, places, y),
    lambda x, y: x.scatter_add(0, whole(0, 6, 3, 7), y),
    lambda x, y: x.index_add(0, rows, y, alpha=0.5),
    lambda x, y: x.scatter(1, places[:, :1], y),
])
def test_writes_that_combine(function, dtype):
    assert_same(function, x.to(dtype), y.to(dtype), flips=0)


@pytest.mark.parametrize("function", [
    lambda x, y: torch.diag_embed(x[0]) * 2,
    lambda x, y: torch.diag_embed(x, offset=1),
    lambda x, y: torch.block_diag(x, y[:2]) * 2,
    lambda x, y: torch.block_diag(x, T([[3, 4]])),
    lambda x, y: (x * 1).tril_(-1) + y.triu(1),
    lambda x, y: torch.diag_embed(torch.complex(x, y)),
])
def test_zeros_around_what_moves(function):
    assert_same(function, x, y, near=0)


@pytest.mark.parametrize("function", [
    lambda x: x.masked_fill(x > 0, 0.3), lambda x: (x * 1).masked_fill_(x > 0, 0.3), lambda x: F.pad(x, (1, 1), value=0.3),
    lambda x: x.index_fill(1, T([1, 2]), 0.3), lambda x: x.scatter(1, T([[1, 2]]), 0.3), lambda x: torch.where(x > 0, x, 0.3),
    lambda x: torch.where(x > 0, T(0.3), x), lambda x: x.masked_fill(x > 0, T(0.3)), lambda x: F.pad(x, (1, 1)),
    lambda x: torch.cat([x, T([[257] * 10])]), lambda x: torch.where(x > 0, x, T(1025)), lambda x: x.masked_fill(x > 0, 257),
    lambda x: (x * 1).fill_(T(0.3)), lambda x: torch.full_like(x, 0.3) + x,
])
def test_a_fill_is_rounded_to_the_tensors_format(function):
    assert_same(function, xb, flips=0)


@pytest.mark.parametrize("number", [0.0, -inf, torch.finfo(torch.bfloat16).min, 1.0, 2])
def test_a_fill_that_is_exact_rounds_nothing(number):
    recorded = assert_same(lambda x: (x.masked_fill(x > 0, number), F.pad(x, (1, 1), value=number), torch.where(x > 0, x, number)), xb)
    assert "round" not in ops_of(recorded)
    assert "round" in ops_of(assert_same(lambda x: x.masked_fill(x > 0, 0.3), xb))


def test_integer_tensors_that_are_filled_in():
    assert_same(lambda x, i: x.masked_fill(x > 0, i), x, T(3))
    assert_same(lambda x, i: x.index_fill(1, i, T(3)), x, whole(0, 10, 3))
    assert_same(lambda x, i: torch.where(x > 0, x, i), x, T(7))


def test_complex_numbers_move_in_two_parts():
    z = torch.complex(x, y)
    assert_same(lambda z: torch.where(z.real > 0, z, 1.5), z)
    assert_same(lambda z: (z * 1).masked_fill_(z.real > 0, 2.0), z)
    assert_same(lambda z: torch.cat([z, z.real.to(torch.complex64)]).flip(0), z)

    def written_in_part(z):
        z = z * 1
        z[2:].index_fill_(0, T([1]), 0)
        return z

    assert_same(written_in_part, z)


def test_results_written_where_the_caller_says():
    def functions(x, y):
        empty, part, low = torch.empty(0), torch.zeros(13, 10), torch.zeros(6, 10, dtype=torch.bfloat16)
        torch.add(x, y, out=empty)
        torch.cat([x, y], 0, out=part[1:])
        torch.mul(xb, yb, out=low)
        order = torch.zeros(6, 10, dtype=torch.int64)
        best = torch.zeros(7, 10)
        torch.sort(x, 0, out=(best[1:], order))
        return empty * 2, part * 2, low * 2, best * 2

    assert_same(functions, x, y)

    def in_place(x, y):
        x = x * 1
        x[x > 0] = 0.3
        x[0] = y[0]
        x[:, 1] += y[:, 1]
        x[T([0, 1]), T([2, 2])] -= 1.5
        x.t().mul_(y.t())
        x.unsqueeze_(0).squeeze_(0).t_()
        return x * 2

    assert_same(in_place, x, y)
    assert_same(in_place, xb, yb)
    assert "resize_" in refused(lambda x: (x * 1).resize_(20, 10), x).what
    assert "sparse" in refused(lambda x: x.to_sparse().to_dense(), x).what


# ---- integers
def in_place(write):
    def function(a):
        i = (a * 10).to(torch.int32)
        write(i)
        return i.float() * 2

    return function


@pytest.mark.parametrize("write", [lambda i: i.add_(1), lambda i: i.clamp_(-5, 5), lambda i: i[0].fill_(5), lambda i: i[0].copy_(T(3)),
                                   lambda i: i.unsqueeze_(0), lambda i: None])
def test_integers_written_after_a_cast(write):
    recorded = assert_same(in_place(write), x)
    # What wrote integers over integers made from floats is named; without it the cast is followed.
    followed = any(n.op == "mul" and recorded.program.nodes[n.operands[0].nodes[0]].op == "trunc" for n in recorded.program.nodes)
    assert followed != any("integers made from floats" in note for note in recorded.notes)


def test_integers_that_wrap():
    for function in (lambda a: (a * 300).to(torch.uint8).float(), lambda a: (-a).to(torch.uint8).float(), lambda a: (a * 1e6).to(torch.int8).float()):
        assert "trunc" not in ops_of(assert_same(function, T([0.25, 1.5, 3.9, 200.0])))
    recorded = assert_same(lambda a: (a * 300).to(torch.int16).float(), T([0.25, -1.5, 3.9]))
    assert "trunc" in ops_of(recorded) and not recorded.notes


def test_integers_written_into_a_floats_bits():
    def zeroed(a):
        a = a * 1
        a.view(torch.int32)[0] = 0
        return a * 2

    def masked(a):
        a = a * 1
        a.view(torch.int32).bitwise_and_(-65536)
        return a * 2

    def back(a):
        a = a * 1
        return a.view(torch.int32)[2:].view(torch.float32) + 1, a * 2

    assert_same(zeroed, x, near=0)
    recorded = assert_same(masked, x, near=0)
    assert [n.attrs for n in recorded.program.nodes if n.op == "round"] == [{"mode": "rz"}]
    assert_same(back, x, near=0)
    refused(lambda a: (a * 1).view(torch.uint8).fill_(0).view(torch.float32), x)


# ---- arguments and formulas
target = T([3, 1, -100, 4, 0, 9])
weight = torch.rand(10, generator=torch.Generator().manual_seed(3)) + 0.1


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("w", [None, weight])
def test_cross_entropy(reduction, w):
    assert_same(lambda x: F.cross_entropy(x, target, weight=w, reduction=reduction), x)
    assert_same(lambda x: F.cross_entropy(x, target, weight=w, reduction=reduction, label_smoothing=0.1), x)
    assert_same(lambda x: F.nll_loss(x.log_softmax(-1), target, weight=w, reduction=reduction), x)


@pytest.mark.parametrize("function", [
    lambda x, y: torch.addmv(y[:, 0], x, y[0], alpha=1.5, beta=0.5), lambda x, y: torch.addmv(y[:, 0] * nan, x, y[0], beta=0),
    lambda x, y: torch.addmm(x @ y.T, x, y.T, alpha=1.5, beta=0.5), lambda x, y: torch.addmm((x @ y.T) * inf, x, y.T, beta=0),
    lambda x, y: torch.baddbmm(x.expand(3, 6, 10), x[:, :4].expand(3, 6, 4), y[:4].expand(3, 4, 10), alpha=2, beta=0.5),
    lambda x, y: F.celu(x, 0.3), lambda x, y: F.elu(x, 0.3), lambda x, y: F.selu(x), lambda x, y: F.elu_(x * 1, 0.7),
    lambda x, y: torch.logit(x.sigmoid(), eps=0.2), lambda x, y: torch.logit(x.sigmoid()), lambda x, y: F.threshold_(x * 1, 0, 5.0),
    lambda x, y: torch.special.xlog1py(x, y.abs()), lambda x, y: torch.xlogy(x, y.abs()), lambda x, y: torch.xlogy(2.0, y.abs()),
    lambda x, y: torch.special.entr(x), lambda x, y: torch.logaddexp(x, y), lambda x, y: torch.logsumexp(x, 1),
    lambda x, y: (x * 1).xlogy_(y.abs()), lambda x, y: torch.nansum(x, 1), lambda x, y: torch.nanmean(x, 1, keepdim=True),
    lambda x, y: torch.div(x, y, rounding_mode="trunc"), lambda x, y: (x * 1).div_(y, rounding_mode="floor"),
    lambda x, y: x // y, lambda x, y: torch.remainder(x, y), lambda x, y: torch.fmod(x, y),
    lambda x, y: torch.special.xlog1py(x, 0.5),
    *(lambda x, y, o=o, d=d: torch.linalg.vector_norm(x, o, d) for o in (0, 1, 2, 3, -1, 0.5, inf, -inf) for d in (None, 1)),
    lambda x, y: torch.norm(x, 1, 1, True), lambda x, y: torch.norm(x),
    lambda x, y: torch.linalg.vector_norm(x.bfloat16(), 2, 1, dtype=torch.float32),
])
def test_arguments(function):
    assert_same(function, x, y, near=1e-5)


@pytest.mark.parametrize("function", [
    torch.xlogy, torch.special.xlog1py, torch.fmax, torch.fmin, torch.maximum, torch.minimum, torch.logaddexp,
    lambda a, b: torch.special.entr(a), lambda a, b: torch.nansum(a[:3]), lambda a, b: torch.nanmean(a[:3]), lambda a, b: torch.sign(a),
    lambda a, b: torch.relu(a), lambda a, b: a.clamp(-1, 1), lambda a, b: F.threshold(a, 0.5, 3.0), lambda a, b: F.leaky_relu(a),
    lambda a, b: torch.logsumexp(torch.stack([a, b]), 0), lambda a, b: torch.logit(a), lambda a, b: F.elu(a), lambda a, b: a // b,
    lambda a, b: a.max(), lambda a, b: a.amin(), lambda a, b: torch.logaddexp(a, a), lambda a, b: torch.linalg.vector_norm(a, -inf),
    lambda a, b: a.sort(descending=True)[0], lambda a, b: a.cummax(0)[0], lambda a, b: F.softplus(a), lambda a, b: torch.remainder(a, b),
    lambda a, b: F.silu(a), lambda a, b: F.logsigmoid(a), lambda a, b: torch.copysign(a, b), lambda a, b: torch.frac(a),
])
def test_numbers_that_are_not_finite(function):
    assert_same(function, odd, odd2)


def test_division_rounded_down_is_not_the_floor_of_the_quotient():
    assert_same(lambda a, b: torch.div(a, b, rounding_mode="floor"), T([1.0, 6.0, -1.0, 5.0, 0.0]), T([0.1, 0.1, 0.1, 0.0, 0.0]))
    assert_same(torch.floor_divide, T([1.0, 6.0, -1.0]), T([0.1, -0.1, 0.3]))


@pytest.mark.parametrize("masked", [
    T([[True] * 4, [False] * 4, [True] * 4, [True, False, True, False]]),
    T([[0.0] * 4, [-inf] * 4, [0.0, -inf, 0.0, 1.0], [0.0] * 4]),
])
def test_attention_of_a_row_that_sees_nothing(masked):
    q = real(1, 2, 4, 8)
    assert_same(lambda q: F.scaled_dot_product_attention(q, q, q, attn_mask=masked), q)
    assert_same(lambda q: torch.ops.aten._safe_softmax((q @ q.mT).masked_fill(torch.ones(4, 4, dtype=torch.bool).tril(-1), -inf).mT, -1), q)


def test_attention_with_more_keys_than_queries():
    q, k = real(1, 2, 4, 8), real(1, 2, 7, 8)
    assert_same(lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True), q, k)


def test_what_is_written_later_does_not_reach_a_constant():
    constant = T([1.0, 2.0, 3.0])

    def function(x):
        torch.manual_seed(0)
        mask = torch.empty(3, 10).bernoulli_(0.5).div_(0.5)
        number = constant.clone()
        y = x[:3] * mask + number[:, None]
        number.mul_(100)
        mask.zero_()
        return y, F.dropout(x, 0.3)

    assert_same(function, x)

    def over_a_constant(x):
        kept = T([1.0, 2.0, 3.0])
        first = x[:3, :3] * kept
        kept[0] = 7.0
        kept.mul_(2)
        return first, x[:3, :3] * kept

    assert_same(over_a_constant, x)


# ---- complex numbers
@pytest.mark.parametrize("function", [
    lambda a, b: a.conj() * b, lambda a, b: a.conj().clone(), lambda a, b: a.conj().imag * 2, lambda a, b: a.conj().real * 2,
    lambda a, b: torch.view_as_real((a * b).conj().resolve_conj()), lambda a, b: a / b, lambda a, b: a / b.real, lambda a, b: b.real / a,
    lambda a, b: a.exp(), lambda a, b: a**2, lambda a, b: a.square(), lambda a, b: a.reciprocal(), lambda a, b: 1 / a,
    lambda a, b: a + 1, lambda a, b: a + 2j, lambda a, b: 1 - a, lambda a, b: a * 2j, lambda a, b: a * 0.5, lambda a, b: a - b.real,
    lambda a, b: torch.add(a, b, alpha=0.5), lambda a, b: torch.sub(a, b, alpha=2j), lambda a, b: torch.rsub(a, b, alpha=3),
    lambda a, b: a.abs(), lambda a, b: a.angle(), lambda a, b: -a, lambda a, b: a @ b.T, lambda a, b: a @ b.mH, lambda a, b: a.sum(1),
    lambda a, b: a.mean(), lambda a, b: torch.conj_physical(a) * b, lambda a, b: torch.polar(a.abs(), b.angle()),
    lambda a, b: (a * 1).mul_(b.conj()), lambda a, b: a.real.to(torch.complex64) * b,
])
def test_complex_arithmetic(function):
    assert_same(function, torch.complex(x, y), torch.complex(y, pos), near=1e-5)


def test_writes_through_a_lazy_conjugate():
    def function(a, b):
        a = a * 1
        a.conj().mul_(b)
        a.conj()[0].copy_(b[0])
        return a

    assert_same(function, torch.complex(x, y), torch.complex(y, pos))


@pytest.mark.parametrize("function", [
    lambda a: a.prod(), lambda a: torch.addcmul(a, a, a), lambda a: a**3, lambda a: a.sqrt(), lambda a: a.cumsum(0), lambda a: a.tanh(),
    lambda a: torch.sgn(a), lambda a: a.pow(a), lambda a: torch.linalg.vector_norm(a), lambda a: a.var(), lambda a: a.sigmoid(),
])
def test_complex_ops_without_a_rule(function):
    assert "complex" in refused(function, torch.complex(x, y)).what


# ---- float64, errors
def test_float64_that_float32_cannot_hold():
    error = refused(lambda a: ((a.double() + 1e9) - 1e9).float(), x)
    assert "float64" in error.what and "aten.sub" in error.what
    refused(lambda a: (a.double().add_(1e9)).sub_(1e9).float(), x)
    refused(lambda a: (a.double() * 1e60).float() + (a.double() * 1e60 * 1e-60).float(), x)


def test_float64_that_float32_holds_is_named():
    def rotary(q):
        inverse = 1.0 / (10000.0 ** (torch.arange(0, 10, 2, dtype=torch.float64) / 10))
        angle = torch.outer(torch.arange(6).double(), inverse)
        return q * torch.cat([angle.cos(), angle.sin()], -1).float()

    recorded = assert_same(rotary, x)
    (note,) = recorded.notes
    assert "float64" in note and "aten.cos" in note
    assert not record(lambda a: a.double().float() * 2, (x,)).notes


@pytest.mark.parametrize(("function", "name"), [
    (lambda x: x.index_reduce(0, rows, x, "amax"), "index_reduce"), (lambda x: x.scatter_reduce(0, rows[:, None], x, "amax"), "scatter_reduce"),
    (lambda x: x.round(decimals=2), "round"), (lambda x: torch.median(x), "median"), (lambda x: torch.i0(x), "i0"),
])
def test_an_op_without_a_rule_is_graphdiffs_own_error(function, name):
    assert name in refused(function, x).what


def test_a_rule_that_fails_is_graphdiffs_own_error(monkeypatch):
    from graphdiff.lower.aten import arithmetic

    monkeypatch.setitem(arithmetic.RULES, "tanh", lambda *a: 1 / 0)
    error = refused(lambda x: x.tanh(), x)
    assert "aten.tanh (its rule raised ZeroDivisionError" in error.what and "test_eager_rules.py" in str(error)
    with pytest.raises(GraphdiffError, match="raised ZeroDivisionError") as own:
        record(lambda x: x * (1 / 0), (x,))
    assert "no lowering" not in own.value.what


def test_products_of_batches_and_scans():
    a, b = real(3, 4, 5), real(3, 5, 6)
    for dtype in (torch.float32, torch.bfloat16):
        assert_same(lambda c, a, b: torch.addbmm(c, a, b, alpha=0.5, beta=2), real(4, 6, dtype=dtype), a.to(dtype), b.to(dtype), flips=0.1)
    assert_same(lambda a: (a[0, 0, 0].cumsum(0), a[0, 0, 0].cumprod(-1), a.cumsum(1)), a)
    assert_same(lambda a: a.cumsum(0, dtype=torch.float32), xb)


def test_the_length_of_large_and_small_numbers():
    a, b = T([3e20, 3e-25, 0.0, inf, nan, 3.0]), T([4e20, 4e-25, 0.0, nan, 1.0, -4.0])
    assert_same(torch.hypot, a, b)
    assert_same(lambda a, b: torch.complex(a, b).abs(), a, b)


def test_memory_that_nobody_wrote_is_no_constant():
    """Its numbers are whatever the heap holds: they are kept nowhere, and reading them is an error."""
    def written(x):
        made = torch.empty_like(x)
        made[..., :4] = x[..., :4]
        made[..., 4:] = 0.5
        return made * 3

    recorded = assert_same(written, real(4, 8))
    assert sum(n.size for n in recorded.program.nodes if n.op == "leaf") == 32  # x alone
    with pytest.raises(GraphdiffError, match="memory is read that nothing recorded has written"):
        record(lambda x: torch.empty_like(x) + x, (real(4, 8),))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_nan_to_num(dtype):
    x = T([1.0, nan, inf, -inf, -2.5, 0.0]).to(dtype)
    assert_same(lambda x: x.nan_to_num(), x)
    assert_same(lambda x: x.nan_to_num(0.3, 1.7, -0.1), x)
    assert_same(lambda x: x.clone().nan_to_num_(0.3), x)


@pytest.mark.parametrize("function", [lambda x: x.abs() ** 1.7, lambda x: x ** -2, lambda x: 2.7 ** x, lambda x: x.fmod(0.3),
                                      lambda x: x.remainder(0.3), lambda x: torch.remainder(2.7, x)])  # fmt: skip
def test_numbers_that_are_taken_in_the_tensors_format(function):
    assert_same(function, real(64, 64, dtype=torch.bfloat16), flips=0.001)


def test_a_scalar_on_the_device_is_taken_in_the_tensors_format_and_one_made_from_a_number_is_not():
    rounds = lambda f: sum(n.op == "round" for n in record(f, (real(8, 8, dtype=torch.bfloat16),)).program.nodes)  # noqa: E731
    assert rounds(lambda x: x * x.float().square().sum()) == 2
    assert rounds(lambda x: x.float() * x.float().square().sum()) == 0
    assert rounds(lambda x: x * torch.tensor(0.3)) == rounds(lambda x: x * 0.3) == 1
