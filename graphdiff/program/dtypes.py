"""Floating-point formats: what they can represent and how a number is rounded to them (numpy only).

Formats are named as torch names them. A format is (precision p in bits with the hidden one, least exponent of the
subnormal quantum, largest finite value, what overflow gives). Sources: IEEE 754-2019 for float16/32/64, the OCP 8-bit
floating point specification 1.0 for the float8 pair. e4m3fn has no infinity: overflow gives the largest number, as
torch's cast (torch/headeronly/util/Float8_e4m3fn.h, 2.13) and CUDA's `cvt.rn.satfinite` do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Format:
    """precision: significant bits; quantum: exponent of the least subnormal; largest: largest finite magnitude."""

    name: str
    precision: int
    quantum: int
    largest: float
    has_inf: bool
    bits: int


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("float64", 53, -1074, float(np.finfo(np.float64).max), True, 64),
        Format("float32", 24, -149, float(np.finfo(np.float32).max), True, 32),
        Format("bfloat16", 8, -133, 3.3895313892515355e38, True, 16),
        Format("float16", 11, -24, 65504.0, True, 16),
        Format("float8_e4m3fn", 4, -9, 448.0, False, 8),
        Format("float8_e5m2", 3, -16, 57344.0, True, 8),
    )
}
LOW = frozenset({"bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"})
"""Formats in which a rounding counts; float32 is the arithmetic, float64 the reference."""

MODES = ("rne", "rna", "rz", "up", "down", "stochastic")
"""Rounding modes: to nearest even, to nearest with ties away from zero, toward zero, toward +inf, toward -inf, stochastic (named, never evaluated)."""


def contains(wide: str, narrow: str) -> bool:
    """True if every value of `narrow` is a value of `wide`."""
    a, b = FORMATS[wide], FORMATS[narrow]
    return a.precision >= b.precision and a.quantum <= b.quantum and a.largest >= b.largest and (a.has_inf or not b.has_inf)


def round_to(x: np.ndarray, dtype: str, mode: str = "rne") -> np.ndarray:
    """Round float32/float64 `x` to `dtype`; the result keeps x's numpy dtype.

    Raises ValueError for a mode that has no single answer (stochastic).
    """
    f = FORMATS[dtype]
    if f.precision >= np.finfo(x.dtype).nmant + 1:
        return x
    if dtype == "bfloat16" and mode == "rne" and x.dtype == np.float32:
        return _bfloat16_rne(x)
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(wide)
        step = np.ldexp(1.0, np.maximum(exponent - f.precision, f.quantum))
        scaled = wide / step
        rounded = _ROUND[mode](scaled) * step
        over = np.abs(rounded) > f.largest
        if over.any():
            limit = np.inf if f.has_inf and mode != "rz" else f.largest
            rounded = np.where(over & np.isfinite(wide), np.copysign(limit, wide), rounded)
    rounded = np.where(np.isfinite(wide), rounded, wide if f.has_inf else np.clip(wide, -f.largest, f.largest))
    return rounded.astype(x.dtype)


def _no_single_answer(_: np.ndarray) -> np.ndarray:
    raise ValueError("stochastic rounding has no single answer")


def _nearest_away(x: np.ndarray) -> np.ndarray:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


_ROUND = {"rne": np.rint, "rna": _nearest_away, "rz": np.trunc, "up": np.ceil, "down": np.floor, "stochastic": _no_single_answer}


def _bfloat16_rne(x: np.ndarray) -> np.ndarray:
    u = np.ascontiguousarray(x).view(np.uint32)
    with np.errstate(over="ignore"):
        r = (u + (((u >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), np.float32(np.nan), r.view(np.float32)).reshape(x.shape)


STORAGE = {"float64": np.float64, "float32": np.float32, "bfloat16": np.uint16, "float16": np.uint16,
           "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}
"""How the raw bits of a leaf are kept in numpy."""


def decode_table(dtype: str) -> np.ndarray:
    """float64 [2**bits]: the number behind every bit pattern of a 16- or 8-bit format (computed once)."""
    if dtype not in _TABLES:
        n = 1 << FORMATS[dtype].bits
        bits = np.arange(n, dtype=np.uint32)
        if dtype == "bfloat16":
            with np.errstate(invalid="ignore"):
                table = (bits << np.uint32(16)).view(np.float32).astype(np.float64)
        elif dtype == "float16":
            table = bits.astype(np.uint16).view(np.float16).astype(np.float64)
        else:
            table = _decode_float8(bits, dtype)
        _TABLES[dtype] = table
    return _TABLES[dtype]


def _decode_float8(bits: np.ndarray, dtype: str) -> np.ndarray:
    man_bits, bias = (3, 7) if dtype == "float8_e4m3fn" else (2, 15)
    sign = np.where(bits & 0x80, -1.0, 1.0)
    exponent = (bits & 0x7F) >> man_bits
    mantissa = (bits & ((1 << man_bits) - 1)).astype(np.float64) / (1 << man_bits)
    value = np.where(exponent == 0, np.ldexp(mantissa, 1 - bias), np.ldexp(1 + mantissa, exponent.astype(int) - bias))
    if dtype == "float8_e4m3fn":
        value = np.where((bits & 0x7F) == 0x7F, np.nan, value)
    else:
        value = np.where(exponent == 31, np.where(mantissa == 0, np.inf, np.nan), value)
    return sign * value


_TABLES: dict[str, np.ndarray] = {}


def decode(raw: np.ndarray, dtype: str) -> np.ndarray:
    """Raw bits (see STORAGE) -> float32 numbers (float64 stays float64)."""
    if dtype in ("float32", "float64"):
        return raw
    if dtype == "bfloat16":
        return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return decode_table(dtype)[raw].astype(np.float32)


def encode_bfloat16(x: np.ndarray) -> np.ndarray:
    """float32 -> uint16 bits, rounded to nearest even."""
    return (_bfloat16_rne(np.asarray(x, np.float32)).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def encode(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """float32 numbers rounded to a format to nearest even, as its bits (see STORAGE)."""
    rounded = round_to(np.asarray(numbers, np.float32), dtype)
    if dtype == "bfloat16":
        return encode_bfloat16(rounded)
    if dtype == "float16":
        return rounded.astype(np.float16).view(np.uint16)
    if dtype in ("float8_e4m3fn", "float8_e5m2"):
        # Codes 0 to 127 are the numbers from 0 up, then infinity, then NaN; the eighth bit is the sign.
        upward = decode_table(dtype)[:128]
        known = upward[np.isfinite(upward) | np.isposinf(upward)]
        codes = np.where(np.isnan(rounded), 127, np.searchsorted(known, np.abs(rounded)))
        return (codes | np.signbit(rounded) * 128).astype(np.uint8)
    return rounded.astype(STORAGE[dtype])
