"""Roundings to every low format, held against torch's own casts: bits, ties, subnormals, overflow, what is not finite."""

import numpy as np
import pytest

from graphdiff.program.bit_patterns import rounding_between
from graphdiff.program.dtypes import LOW, decode, decode_table, encode, round_to

torch = pytest.importorskip("torch")
EDGES = np.array([0, -0.0, np.inf, -np.inf, np.nan, 448, 449, 464, 465, 480, -1e6, 57344, 6.2e4, 65504, 65519, 65520, 3.4e38, -3.4e38, 1e-45, -1e-9,
                  2.0**-9, 2.0**-10, 1.5 * 2.0**-10, 2.0**-16, 2.0**-17, 2.0**-24, 2.0**-25, 2.0**-133, 2.0**-134], np.float32)


def samples(dtype):
    rng = np.random.default_rng(0)
    random = [rng.standard_normal(20_000).astype(np.float32) * np.float32(scale) for scale in (1e-6, 1e-2, 1, 100, 3e4)]
    with np.errstate(all="ignore"):
        if dtype == "bfloat16":
            exact = decode(np.arange(0x10000, dtype=np.uint16), dtype)
        else:
            exact = decode_table(dtype).astype(np.float32)
        exact = np.sort(exact[np.isfinite(exact)])
        halfway = ((exact[:-1].astype(np.float64) + exact[1:]) / 2).astype(np.float32)
    return np.concatenate([EDGES, *random, exact, halfway, np.nextafter(halfway, np.float32(np.inf)), np.nextafter(halfway, np.float32(-np.inf))])


@pytest.mark.parametrize("dtype", sorted(LOW))
def test_bits_are_those_of_torchs_cast(dtype):
    x = samples(dtype)
    theirs = torch.from_numpy(x).to(getattr(torch, dtype))
    raw = theirs.view(torch.uint8 if "float8" in dtype else torch.uint16).numpy()
    ours = encode(x, dtype)
    same = (raw == ours) | np.isnan(x)  # a NaN's payload is no number
    assert same.all(), (x[~same][:8], raw[~same][:8], ours[~same][:8])
    assert np.isnan(decode(ours, dtype)[np.isnan(x)]).all()
    assert np.array_equal(round_to(x, dtype), theirs.float().numpy(), equal_nan=True)


@pytest.mark.parametrize("dtype", sorted(LOW))
def test_rounding_again_changes_nothing(dtype):
    once = round_to(samples(dtype), dtype)
    assert np.array_equal(round_to(once, dtype), once, equal_nan=True)


@pytest.mark.parametrize("mode", ["rne", "rna", "rz", "up", "down"])
def test_a_rounding_is_recognised_by_its_numbers(mode):
    x = np.random.default_rng(1).standard_normal(4096).astype(np.float32)
    x[:64] = decode(np.arange(0x3F80, 0x3FC0, dtype=np.uint16), "bfloat16") + np.float32(2.0**-8)  # ties: rne is not rna
    assert rounding_between(x, round_to(x, "bfloat16", mode), "float32") == ("bfloat16", mode)


def test_what_is_no_rounding_is_not_recognised():
    x = np.random.default_rng(2).standard_normal(256).astype(np.float32)
    assert rounding_between(x, x, "float32") == ("", "")
    assert rounding_between(x, x * np.float32(1.5), "float32") is None
    below, above = round_to(x, "bfloat16", "down"), round_to(x, "bfloat16", "up")
    mixed = np.where(np.arange(256) % 3 == 0, below, above)
    assert rounding_between(x, mixed, "bfloat16") == ("bfloat16", "stochastic")
