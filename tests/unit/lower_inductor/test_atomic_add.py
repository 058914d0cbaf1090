"""Scattered sums of the backward: several lanes add to one place."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from graphdiff.capture.compiled import record_compiled  # noqa: E402
from graphdiff.capture.function import Function  # noqa: E402
from graphdiff.errors import GraphdiffError  # noqa: E402
from graphdiff.program.dtypes import decode, round_to  # noqa: E402
from graphdiff.program.evaluate import Evaluation  # noqa: E402

IDS = torch.tensor([3, 1, 4, 1, 5, 1, 2, 6])


def table():
    return torch.randn(16, 32, generator=torch.Generator().manual_seed(0)).bfloat16()


def backward(function, *args):
    return record_compiled(Function(function, args, ("weight", "ids"), __file__, "function"), "cuda:90", backward=True)


def test_the_gradient_of_an_embedding_sums_equal_tokens_in_float32():
    recorded = backward(lambda weight, ids: torch.nn.functional.embedding(ids, weight) * 2, table(), IDS)
    assert "tl.atomic_add" in recorded.sources["backward_code"]
    program = recorded.program
    (leaf,) = (n for n, node in enumerate(program.nodes) if node.kind == "leaf" and node.attrs.get("name") == "grad_output0")
    gradient = decode(recorded.bits[leaf], "bfloat16").reshape(8, 32)
    summed = np.zeros((16, 32), np.float32)
    np.add.at(summed, IDS.numpy(), round_to(gradient * 2, "float32").astype(np.float32))
    (place,) = (i for i, o in enumerate(program.outputs) if o.name == "grad_weight")
    assert np.array_equal(Evaluation(program, recorded.bits).output(place).reshape(16, 32), round_to(summed, "bfloat16"))


def test_sums_in_a_16_bit_format_are_named():
    with pytest.raises(GraphdiffError, match="tl.atomic_add of several numbers to one place of bfloat16 memory"):
        backward(lambda weight, ids: weight[ids] * 2, table(), IDS)
    unique = backward(lambda weight, ids: weight[ids] * 2, table(), torch.arange(8))
    assert "tl.atomic_add" in unique.sources["backward_code"]
