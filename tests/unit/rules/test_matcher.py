"""Matching on small programs: operands in either order, seen through rounds, exact ops and layout."""

import numpy as np
import pytest
from small_sides import SmallSide

from graphdiff.program import Builder
from graphdiff.rules.graph import ValueGraph
from graphdiff.rules.matcher import Matcher
from graphdiff.rules.model import load_rules
from graphdiff.rules.naming import name_values
from graphdiff.rules.pattern import Definition, parse


def leaf(b, name, shape=(4, 8), **kw):
    return b.leaf(name, np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape), "float32", dynamic=True, **kw)


def matches(b, text, node, definitions=None):
    return Matcher(ValueGraph(SmallSide(b))).matches(parse(text, definitions or {}), node)


def test_either_order_and_through_what_commutes():
    b = Builder()
    x, y = leaf(b, "x"), leaf(b, "y")
    rounded = b.round(b.op("neg", x.map(lambda i: i[:, ::-1])), "bfloat16")
    n = b.op("mul", y, b.op("exp", rounded)).node
    found = matches(b, "(mul (exp ?x) ?y)", n)
    assert [(m["x"].bases, m["y"].bases) for m in found] == [((x.node,), (y.node,))]


def test_one_name_is_one_value():
    b = Builder()
    x, y = leaf(b, "x"), leaf(b, "y")
    assert matches(b, "(mul ?a ?a)", b.op("mul", x, x).node)
    assert not matches(b, "(mul ?a ?a)", b.op("mul", x, y).node)


def test_recomputed_values_are_one_value():
    b = Builder()
    x, y = leaf(b, "x"), leaf(b, "y")
    n = b.op("mul", b.op("add", x, y), b.op("add", y, x)).node
    assert matches(b, "(mul ?a ?a)", n)


def test_tokens_embedded_again_in_another_loop_are_one_value():
    """The C++ backend reads a table again in the loop after a reduction. Other tokens are another value."""
    b = Builder()
    table = leaf(b, "table", (16, 8))

    def embedded(*tokens):
        return b.op("embedding", table.map(lambda ids: ids[list(tokens)]), dynamic=True)

    one, again, other = embedded(3, 5), embedded(3, 5), embedded(3, 6)
    assert one.node != again.node
    assert matches(b, "(mul ?a ?a)", b.op("mul", one, again).node)
    assert not matches(b, "(mul ?a ?a)", b.op("mul", one, other).node)


def test_sub_is_not_swapped_but_add_or_sub_is():
    b = Builder()
    x, e = leaf(b, "x"), leaf(b, "e")
    n = b.op("sub", b.op("exp", e), x).node
    assert not matches(b, "(sub ?x (exp ?e))", n)
    assert matches(b, "(add|sub ?x (exp ?e))", n)


def test_constants_by_value_and_kind():
    b = Builder()
    n = b.op("add", leaf(b, "x"), 1.0).node
    assert matches(b, "(add ?x 1)", n) and not matches(b, "(add ?x 2)", n)
    assert matches(b, "(add ?x ?c:const)", n)[0]["c"].operand is not None
    assert not matches(b, "(add ?x:const ?y:const)", n)


def test_spellings_are_tried_in_order():
    b = Builder()
    n = b.op("div", 1.0, leaf(b, "x")).node
    inverse = {"inverse": Definition(("x",), ("(reciprocal $x)", "(div 1 $x)"))}
    assert matches(b, "(inverse ?x)", n, inverse)


def rotated(b, x, cos, sin):
    h = x.shape[-1] // 2
    turned = np.concatenate((b.op("neg", x.map(lambda i: i[:, h:])).ids, x.ids[:, :h]), -1)
    turned = type(x)(turned.shape, ids=turned)
    one, two = b.op("mul", x, cos), b.op("mul", turned, sin)
    return one, two, b.op("add", b.round(one, "bfloat16"), b.round(two, "bfloat16"))


@pytest.mark.parametrize("names", [("cos", "sin"), ("c", "s")])
def test_cosines_are_told_from_sines_without_their_names(names):
    b = Builder()
    one, two, total = rotated(b, leaf(b, "q"), leaf(b, names[0]), leaf(b, names[1]))
    side = SmallSide(b)
    found = name_values(side, [side.moved(two.node), side.moved(one.node)])
    assert [(n.rule, n.value, n.root) for n in found] == [
        ("rope", "rotate_half(q) * sin", total.node), ("rope", "q * cos", total.node)]


def test_a_weighted_sum_of_two_terms_is_no_rotation():
    b = Builder()
    y, w = leaf(b, "y", (2, 4, 8)), leaf(b, "w", (2, 4, 1))
    terms = [b.op("mul", y.map(lambda i, e=e: i[e]), w.map(lambda i, e=e: i[e])) for e in (0, 1)]
    b.op("add", *(b.round(t, "bfloat16") for t in terms))
    side = SmallSide(b)
    assert {n.rule for n in name_values(side, [side.moved(t.node) for t in terms])} != {"rope"}


def named_by_sum(y_shape, w_shape, axis, flat=()):
    """The rule of a rounded product that is added along an axis. `flat`: how a kernel lays the product out, and its axis."""
    b = Builder()
    y, w = leaf(b, "y", y_shape), leaf(b, "w", w_shape)
    if flat:
        order, shape = flat
        y, w = (v.map(lambda i: np.broadcast_to(i, y_shape).transpose(order).reshape(shape)) for v in (y, w))
        axis = len(shape) - 1
    product = b.op("mul", y, w)
    b.op("sum", b.round(product, "bfloat16"), axes=[axis])
    side = SmallSide(b)
    (n,) = name_values(side, [side.moved(product.node)])
    return n.rule, n.value


def test_a_router_weight_is_one_of_each_row_and_rows_are_added():
    experts = ("expert-sum", "y * router weight")
    assert named_by_sum((6, 4, 8), (6, 4, 1), 1) == experts
    assert named_by_sum((6, 4, 8), (6, 4, 1), 1, ((0, 2, 1), (48, 4))) == experts  # a kernel's: tokens and columns are one axis
    assert named_by_sum((6, 8), (6, 1), 0) == experts


@pytest.mark.parametrize(("y", "w", "axis"), [((6, 4, 8), (8,), 2), ((6, 4, 8), (8,), 1), ((6, 8), (6, 8), 0), ((6, 8), (1,), 0), ((6, 8), (6, 1), 1)])
def test_other_sums_of_products_are_no_experts(y, w, axis):
    """A dot product, columns scaled, two of one shape, one scale of all, the numbers of one row added."""
    assert named_by_sum(y, w, axis)[0] != "expert-sum"


def test_a_factor_made_from_the_row_is_no_router_weight():
    b = Builder()
    x = leaf(b, "x", (6, 8))
    product = b.op("mul", x, b.op("rsqrt", b.op("sum", b.op("mul", x, x), axes=[1]).reshape(6, 1)))
    b.op("sum", b.round(product, "bfloat16"), axes=[0])
    side = SmallSide(b)
    assert [n.rule for n in name_values(side, [side.moved(product.node)])] != ["expert-sum"]


def test_what_no_rule_names_is_still_named():
    b = Builder()
    t = b.op("tanh", leaf(b, "x"))
    b.op("atan", b.round(t, "bfloat16"))
    side = SmallSide(b)
    (n,) = name_values(side, [side.moved(t.node)])
    assert (n.rule, n.kind, n.value, n.root) == (None, "generic", "tanh(x)", None)


def test_a_name_made_of_operands_says_what_they_are_read_through():
    b = Builder()
    x, y = leaf(b, "x"), leaf(b, "y")
    products = [b.op("mul", x, b.op("neg", y)), b.op("mul", x, b.op("amax", y, axes=[1]).reshape(4, 1)), b.op("mul", x, b.round(y, "bfloat16"))]
    for product in products:
        b.op("tanh", product)
    side = SmallSide(b)
    assert [n.value for n in name_values(side, [side.moved(p.node) for p in products], rules=())] == ["x * -y", "x * amax(y)", "x * y"]


def test_without_rules_everything_is_generic():
    b = Builder()
    one, two, _ = rotated(b, leaf(b, "q"), leaf(b, "cos"), leaf(b, "sin"))
    side = SmallSide(b)
    assert {n.rule for n in name_values(side, [side.moved(one.node), side.moved(two.node)], rules=())} == {None}


def test_long_chains_and_hundreds_of_values_are_quick():
    b = Builder()
    x, w, sums = leaf(b, "x"), leaf(b, "w", (8,)), []
    for _ in range(80):
        s = b.op("add", x, leaf(b, "y"))
        x = b.round(s, "bfloat16")
        mean = b.op("div", b.op("sum", b.op("mul", x, x), axes=[1]).reshape(4, 1), 8.0)
        hat = b.op("mul", x, b.op("rsqrt", b.op("add", mean, 1e-6)))
        b.op("mul", b.round(hat, "bfloat16"), w)
        sums += [s.node, hat.node]
    side = SmallSide(b)
    found = name_values(side, [side.moved(n) for n in sums], load_rules())
    assert [n.value for n in found] == ["x + residual", "xhat"] * 80
    assert len({n.root for n in found}) == 80
