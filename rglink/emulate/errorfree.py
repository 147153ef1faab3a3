"""Exactly rounded sums and products from doubles and the errors of their operations, where integers would be slow.

`two_sum` and `two_product` are Knuth's and Dekker's; the fused multiply-add of doubles is Boldo's and Melquiond's
("Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
"""

from __future__ import annotations

import numpy as np

from rglink.emulate import softfloat
from rglink.emulate.forms import F32, F64, I64, U64, Bits
from rglink.emulate.softfloat import FORMATS

# Dekker's splitter, 2**27 + 1; and the sizes between which `fused64` overflows nowhere and loses no bit below 2**-1074.
_SPLITTER = 134217729.0
_LEAST, _MOST = 2.0**-960, 2.0**990
_LOST = np.uint64((1 << 29) - 1)
_HALF = np.uint64(1 << 28)
_SMALLEST_NORMAL = np.float32(2.0**-126)


def two_sum(x: Bits, y: Bits) -> tuple[Bits, Bits]:
    """x + y as rounded, and what the rounding lost."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _split(x: Bits) -> tuple[Bits, Bits]:
    wide = x * _SPLITTER
    high = wide - (wide - x)
    return high, x - high


def two_product(x: Bits, y: Bits) -> tuple[Bits, Bits]:
    """x * y as rounded, and what the rounding lost."""
    product = x * y
    (xh, xl), (yh, yl) = _split(x), _split(y)
    return product, ((xh * yh - product) + xh * yl + xl * yh) + xl * yl


def _odd_sum(x: Bits, y: Bits) -> Bits:
    """x + y rounded to odd: an inexact sum is whichever neighbour has its last bit set."""
    total, error = two_sum(x, y)
    bits = total.view(I64)
    # Away from zero is one up in the pattern, towards zero one down.
    step = np.where((error > 0) == (total > 0), I64.type(1), I64.type(-1))
    even = (error != 0) & (bits & I64.type(1) == 0)
    return (bits + step * even).view(F64)


def fused64(a: Bits, b: Bits, c: Bits) -> Bits:
    """a * b + c of f64 patterns, rounded once to nearest."""
    x, y, z = a.view(F64), b.view(F64), c.view(F64)
    product, error = two_product(x, y)
    size = np.abs(product)
    plain = ((size > _LEAST) | (x == 0) | (y == 0)) & (size < _MOST)
    plain = plain & (np.abs(x) < _MOST) & (np.abs(y) < _MOST) & (np.abs(z) < _MOST)
    middle, low = two_sum(z, error)
    high, rest = two_sum(product, middle)
    total = high + _odd_sum(low, rest)
    # A sum of zeros, and a cancelled one, has its sign from the plain sum.
    result = np.where(total == 0, product + z, total).view(U64)
    if plain.all():
        return result
    result, hard, *operands = np.broadcast_arrays(result, ~plain, a, b, c)
    result = result.copy()
    result[hard] = softfloat.multiply_add(FORMATS["f64"], "rn", *(v[hard] for v in operands))
    return result


def nudged(total: Bits, error: Bits, lanes: Bits) -> Bits:
    """The numbers moved by one place towards their exact values in these lanes, so that no tie is left there."""
    towards = np.where(error > 0, np.inf, np.where(error < 0, -np.inf, total)).astype(total.dtype, copy=False)
    return np.where(lanes, np.nextafter(total, towards), total)


def to_nearest32(product: Bits, addend: Bits) -> Bits:
    """The f32 nearest to the sum of doubles: an exact product and an addend. As float32 numbers."""
    total = product + addend
    narrow = total.astype(F32)
    # The sum was itself rounded. That matters on a tie, which among the subnormals has other bits.
    doubtful = ((total.view(U64) & _LOST) == _HALF) | ((np.abs(narrow) < _SMALLEST_NORMAL) & (total != 0))
    if not doubtful.any():
        return narrow
    total, error = two_sum(product, addend)
    return nudged(total, error, doubtful).astype(F32)


def to_odd32(product: Bits, addend: Bits) -> Bits:
    """The same sum as a float32 that is no tie of a 16-bit format unless the exact sum is."""
    total, error = two_sum(product, addend)
    narrow = total.astype(F32)
    wide = narrow.astype(F64)
    return nudged(narrow, np.where(total == wide, error, total - wide), narrow.view(np.uint32) & np.uint32(1) == 0)


def directed32(rounding: str, total: Bits, error: Bits) -> Bits:
    """The f32 next to total + error towards zero (rz), minus (rm) or plus infinity (rp); float32 from float64.

    `error` is at most half a place of `total`, which no number of f32 or zero separates from the exact value.
    """
    narrow = total.astype(F32)
    wide = narrow.astype(F64)
    above = (wide > total) | ((wide == total) & (error < 0))
    below = (wide < total) | ((wide == total) & (error > 0))
    down, up = np.nextafter(narrow, F32.type(-np.inf)), np.nextafter(narrow, F32.type(np.inf))
    if rounding == "rm":
        return np.where(above, down, narrow)
    if rounding == "rp":
        return np.where(below, up, narrow)
    return np.where(above & (total > 0), down, np.where(below & (total < 0), up, narrow))
