"""Big leaves shrink to what is read of them, and every number stays."""

from __future__ import annotations

import numpy as np

from graphdiff.program import Builder, Elements, Evaluation
from graphdiff.program.compact import MOST, shrink_leaves


def program():
    rng = np.random.default_rng(0)
    b = Builder()
    table = b.leaf("table", rng.standard_normal((2000, 64)).astype(np.float32), "float32")
    x = b.leaf("x", rng.standard_normal((3, 64)).astype(np.float32), "float32", dynamic=True)
    rows = table.map(lambda ids: ids[[5, 7, 1999]])
    product = b.op("mul", x, rows)
    # One operand that reads the table and something else, as a kernel with dead lanes does.
    mixed = Elements((3, 64), ids=np.where(np.arange(64) < 32, rows.ids, product.ids))
    b.output("y", b.op("add", product, mixed))
    return b


def test_numbers_stay_and_the_capture_holds_them():
    b = program()
    before = Evaluation(b.program, dict(b.leaf_bits)).output(0)
    bits = dict(b.leaf_bits)
    shrink_leaves(b.program, bits)
    assert b.program.nodes[0].size == 3 * 64 and b.program.data[0].size == 3 * 64
    assert np.array_equal(Evaluation(b.program, b.program.data).output(0), before)


def test_leaves_that_are_read_whole_or_by_anchors_stay():
    b = Builder()
    weight = b.leaf("weight", np.ones((512, 256), np.float32), "float32")
    x = b.leaf("x", np.ones((2, 512), np.float32), "float32", dynamic=True)
    b.output("y", b.op("mm", x, weight))
    bits = dict(b.leaf_bits)
    shrink_leaves(b.program, bits)
    assert b.program.nodes[0].size == 512 * 256 > MOST and 0 not in b.program.data
