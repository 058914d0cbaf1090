"""Functions that nobody wrote (tests/support/random_functions.py): eager bits, CUDA kernels in the interpreter, native bits.

benchmarks/random_functions.py runs as many as one likes.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from random_functions import OTHERWISE_ON_A_CPU, random_function  # noqa: E402
from random_programs import cuda_kernels, eager_against_compiled, eager_bits, native_bits  # noqa: E402

EAGER = [s for s in range(400) if not any(word in random_function(s).text for word in OTHERWISE_ON_A_CPU)]


def test_the_functions_are_many_and_unlike():
    texts = {random_function(s).text for s in EAGER}
    assert len(texts) == len(EAGER) > 100
    assert random_function(7).text == random_function(7).text


@pytest.mark.parametrize("part", range(4))
def test_eager_bits(part):
    """Bit for bit but for ties: sums in another order, transcendentals of another library."""
    wrong = {seed: said for seed in EAGER[part::4] if (said := eager_bits(random_function(seed)))}
    assert not wrong, "\n".join(f"{seed}: {said}" for seed, said in wrong.items())


@pytest.mark.parametrize("seed", [0, 3, 5, 8])
def test_native_bits(seed):
    assert not native_bits(random_function(seed))


@pytest.mark.parametrize("seed", [4, 5, 8, 12])
def test_cuda_kernels_do_in_the_interpreter_what_their_programs_say(seed):
    pytest.importorskip("triton")
    assert not cuda_kernels(random_function(seed))


@pytest.mark.parametrize("seed", [4, 5, 8, 12])
def test_eager_and_compiled_are_one_computation(seed):
    pytest.importorskip("triton")
    assert not eager_against_compiled(random_function(seed))
