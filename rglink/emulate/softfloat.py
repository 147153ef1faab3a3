"""Exact binary floating point on integer arrays: any format up to f64, any rounding, one rounding an operation.

A finite value is a triple: negative (bool), exponent (int64) and significand (uint64 in [2**61, 2**62), or 0), worth
significand * 2**exponent. Operations form such a triple with all lost bits collected ("jammed") in the lowest bit, and
`encode` rounds it. Layouts: IEEE 754, and for the narrow formats the PTX ISA's "Alternate Floating-Point Data Formats".

NaNs: f16, bf16 and f32 results are NVIDIA's canonical NaN (all ones without the sign; CUDA C++ Programming Guide,
"Floating-Point Standard"). PTX promises payloads for f64: here the first NaN operand, made quiet, and
0xfff8000000000000 where an operation on numbers has no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rglink.emulate.forms import F16, F32, F64, I64, U16, U32, U64, Bits

ROUNDINGS = ("rn", "rz", "rm", "rp")
# The formats that NumPy knows.
NUMBERS: Mapping[str, np.dtype[Any]] = {"f16": F16, "f32": F32, "f64": F64}


@dataclass(frozen=True)
class Format:
    """A floating-point layout: sign, exponent with `bias`, `fraction` bits; `largest` the bits of the greatest number.

    `nan` is the NaN that operations return. Formats without infinities have `infinity` None, those without NaNs
    `nan` None.
    """

    name: str
    width: int
    fraction: int
    bias: int
    largest: int
    infinity: int | None
    nan: int | None

    @property
    def bits(self) -> np.dtype[Any]:
        return np.dtype(f"u{max(self.width, 8) // 8}")

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1)


def _ieee(name: str, width: int, fraction: int, nan: int | None = None) -> Format:
    infinity = ((1 << (width - 1 - fraction)) - 1) << fraction
    bias = (1 << (width - 2 - fraction)) - 1
    return Format(name, width, fraction, bias, infinity - 1, infinity, nan or (1 << (width - 1)) - 1)


def _finite(name: str, width: int, fraction: int, bias: int, largest: int, nan: int | None = None) -> Format:
    return Format(name, width, fraction, bias, largest, None, nan)


FORMATS: Mapping[str, Format] = {
    f.name: f
    for f in (
        _ieee("f16", 16, 10),
        _ieee("bf16", 16, 7),
        _ieee("f32", 32, 23),
        _ieee("f64", 64, 52, 0xFFF8 << 48),
        _ieee("e5m2", 8, 2),
        _finite("e4m3", 8, 3, 7, 0x7E, 0x7F),
        _finite("e2m3", 6, 3, 1, 0x1F),
        _finite("e3m2", 6, 2, 3, 0x1F),
        _finite("e2m1", 4, 1, 1, 0x7),
    )
}
_TOP = 61
_ONE = np.uint64(1)
_SIXTEEN = np.uint32(16)
# Below every exponent that a number has: what zero is worth when operands are aligned.
_NOTHING = np.int64(-100_000)


def _word(value: int) -> np.uint64:
    return np.uint64(value)


def normalised(exponent: Bits, significand: Bits) -> tuple[Bits, Bits]:
    """The same value with the top bit at 61 (jamming bits 62 and 63 away), zero as it is."""
    jam = significand & _word(3) != 0
    high = significand >> _word(62) != 0
    significand = np.where(high, (significand >> _word(2)) | jam, significand)
    length = (significand & ~(significand >> _ONE)).astype(F64).view(I64) >> np.int64(52)
    up = np.where(significand == 0, np.int64(0), np.int64(1023 + _TOP) - length)
    exponent = np.where(significand == 0, _NOTHING, exponent + 2 * high - up)
    return exponent, significand << up.astype(U64)


def decode(form: Format, bits: Bits) -> tuple[Bits, Bits, Bits]:
    """Negative, exponent, significand of finite values; lanes that hold infinity or NaN get a number of no meaning."""
    wide = np.asarray(bits).astype(U64)
    magnitude = wide & _word(form.sign - 1)
    field = magnitude >> _word(form.fraction)
    fraction = magnitude & _word((1 << form.fraction) - 1)
    significand = fraction | ((field != 0).astype(U64) << _word(form.fraction))
    exponent = np.maximum(field, _ONE).astype(I64) - np.int64(form.bias + form.fraction)
    return (wide & _word(form.sign) != 0, *normalised(exponent, significand))


def is_nan(form: Format, bits: Bits) -> Bits:
    """Whether a pattern is a NaN; a format without infinities has one NaN a sign, at the end."""
    if form.nan is None:
        return np.zeros(np.shape(bits), dtype=bool)
    last = form.largest if form.infinity is None else form.infinity
    return (bits & form.bits.type(form.sign - 1)) > form.bits.type(last)


def _is_infinite(form: Format, bits: Bits) -> Bits:
    assert form.infinity is not None, form.name
    return (bits & form.bits.type(form.sign - 1)) == form.bits.type(form.infinity)


def encode(form: Format, rounding: str, negative: Bits, exponent: Bits, significand: Bits) -> Bits:
    """Round the triple (normalised, jammed) into the format; rounding is rn, rz, rm, rp or rna (ties away).

    Overflow: infinity or the largest number as IEEE 754 has it; always the largest in formats without infinities.
    """
    field = exponent + np.int64(_TOP + form.bias)
    extra = np.clip(1 - field, 0, form.fraction + 2)
    shift = (np.int64(_TOP - form.fraction) + extra).astype(U64)
    kept = significand >> shift
    lost = significand - (kept << shift)
    half = _ONE << (shift - _ONE)
    if rounding == "rn":
        up = (lost > half) | ((lost == half) & (kept & _ONE != 0))
    elif rounding == "rna":
        up = lost >= half
    else:
        away = {"rz": False, "rm": negative, "rp": ~negative}[rounding]
        up = (lost != 0) & away
    ceiling = np.int64((form.largest >> form.fraction) + 2)
    base = (np.clip(field, 1, ceiling) - 1).astype(U64) << _word(form.fraction)
    magnitude = np.where(significand == 0, _word(0), base + kept + up)
    over = magnitude > _word(form.largest)
    if form.infinity is None:
        beyond: Bits | np.uint64 = _word(form.largest)
    else:
        to_infinity = {"rn": True, "rna": True, "rz": False, "rm": negative, "rp": ~negative}[rounding]
        beyond = np.where(to_infinity, _word(form.infinity), _word(form.largest))
    magnitude = np.where(over, beyond, magnitude)
    return (magnitude | (negative.astype(U64) * _word(form.sign))).astype(form.bits)


def nan_of(form: Format, *operands: Bits) -> Bits:
    """The NaN that an operation on these operands gives: see the head of the module."""
    assert form.nan is not None, form.name
    result = form.bits.type(form.nan)
    if form.name != "f64":
        return result
    for operand in reversed(operands):
        result = np.where(is_nan(form, operand), operand | form.bits.type(1 << (form.fraction - 1)), result)
    return result


def has_nan(numbers: Bits) -> bool:
    """Whether any element is a NaN, by the one reduction that NumPy vectorises for it."""
    least = numbers.min(initial=np.inf)
    return bool(least != least)


def settle(form: Format, numbers: Bits, *operands: Bits) -> Bits:
    """The bits of results (float arrays), their NaNs replaced by those that the device gives for these operands."""
    bits = numbers.view(form.bits)
    if not has_nan(numbers):
        return bits
    return np.where(numbers != numbers, nan_of(form, *operands), bits)


def flush(form: Format, bits: Bits) -> Bits:
    """Subnormals as zeros of the same sign (.ftz)."""
    smallest, sign = form.bits.type(1 << form.fraction), form.bits.type(form.sign)
    return np.where((bits & (sign - form.bits.type(1))) < smallest, bits & sign, bits)


def saturate(form: Format, bits: Bits) -> Bits:
    """Clamped to [+0, 1] (.sat); NaN and -0 become +0. Patterns of positive numbers order as integers."""
    one = form.bits.type(form.bias << form.fraction)
    negative_or_nan = (bits & form.bits.type(form.sign) != 0) | is_nan(form, bits)
    return np.where(negative_or_nan, form.bits.type(0), np.minimum(bits, one))


def relu(form: Format, bits: Bits) -> Bits:
    """Negative numbers and -0 as +0 (.relu); NaNs canonical."""
    clamped = np.where(bits & form.bits.type(form.sign) != 0, form.bits.type(0), bits)
    return np.where(is_nan(form, bits), nan_of(form), clamped)


def from_bf16(bits: Bits) -> Bits:
    """bf16 patterns as float32 numbers."""
    return (bits.astype(U32) << _SIXTEEN).view(F32)


def to_bf16(numbers: Bits) -> Bits:
    """float32 numbers as bf16 patterns, to nearest even; NaNs become 0x7fff."""
    bits = numbers.view(U32)
    rounded = ((bits + (np.uint32(0x7FFF) + ((bits >> _SIXTEEN) & np.uint32(1)))) >> _SIXTEEN).astype(U16)
    return np.where(numbers != numbers, np.uint16(0x7FFF), rounded) if has_nan(numbers) else rounded


def widen(form: Format, bits: Bits) -> Bits:
    """f16, bf16, f32 or f64 patterns as float64 numbers."""
    return (from_bf16(bits) if form.name == "bf16" else bits.view(NUMBERS[form.name])).astype(F64)


def _product(x: Bits, y: Bits) -> tuple[Bits, Bits]:
    """The 128-bit product of significands: high and low words."""
    mask, half = _word(0xFFFFFFFF), _word(32)
    x0, x1, y0, y1 = x & mask, x >> half, y & mask, y >> half
    cross, other = x0 * y1, x1 * y0
    middle = ((x0 * y0) >> half) + (cross & mask) + (other & mask)
    return x1 * y1 + (cross >> half) + (other >> half) + (middle >> half), x * y


def _shift_right(high: Bits, low: Bits, count: Bits) -> tuple[Bits, Bits]:
    """128-bit shift by 0 to 127 with jam. NumPy's shifts by 64 and more, and so by "negative" counts, give 0."""
    c64, c128 = _word(64), _word(128)
    lost = (low << (c64 - np.minimum(count, c64))) | (high << (c128 - count))
    shifted = (low >> count) | (high << (c64 - count)) | (high >> (count - c64))
    return high >> count, shifted | (lost != 0)


def _chosen(mask: Bits, x: tuple[Bits, Bits], y: tuple[Bits, Bits]) -> tuple[Bits, Bits]:
    return np.where(mask, x[0], y[0]), np.where(mask, x[1], y[1])


def _magnitude_sum(x: tuple[Bits, Bits], y: tuple[Bits, Bits], subtract: Bits) -> tuple[Bits, Bits, Bits]:
    """128-bit x + y, or where `subtract` |x - y|, and whether y was the greater."""
    (xh, xl), (yh, yl) = x, y
    y_greater = (yh > xh) | ((yh == xh) & (yl > xl))
    (big_h, big_l), (small_h, small_l) = _chosen(y_greater, y, x), _chosen(y_greater, x, y)
    low: Bits = np.where(subtract, big_l - small_l, big_l + small_l)
    carry: Bits = np.where(subtract, big_l < small_l, low < big_l)
    high = np.where(subtract, big_h - small_h - carry.astype(U64), big_h + small_h + carry)
    return high, low, y_greater


def multiply_add(form: Format, rounding: str, a: Bits, b: Bits, c: Bits) -> Bits:
    """a * b + c with one rounding; patterns in and out, all of the format."""
    (sa, ea, ma), (sb, eb, mb), (sc, ec, mc) = decode(form, a), decode(form, b), decode(form, c)
    sp = sa ^ sb
    product, addend = _product(ma, mb), (mc >> _word(3), mc << _word(61))
    ep, ec = ea + eb, ec - _TOP
    gap = ep - ec
    low_end = np.minimum(np.abs(gap), 127).astype(U64)
    product = _chosen(gap < 0, _shift_right(*product, low_end), product)
    addend = _chosen(gap > 0, _shift_right(*addend, low_end), addend)
    high, low, addend_greater = _magnitude_sum(product, addend, sp != sc)
    negative = np.where(addend_greater, sc, sp)
    zero = (high | low) == 0
    negative = np.where(zero & (sp != sc), rounding == "rm", negative)
    top: Bits = np.where(high == 0, low, high)
    length = (top & ~(top >> _ONE)).astype(F64).view(I64) >> np.int64(52)
    up = np.where(zero, np.int64(0), np.where(high == 0, 1148, 1084) - length).astype(U64)
    c64 = _word(64)
    significand = (high << up) | (low >> (c64 - up)) | (low << (up - c64)) | ((low << up) != 0)
    result = encode(form, rounding, negative, np.maximum(ep, ec) + 64 - up.astype(I64), significand)
    return _fma_specials(form, (a, b, c), sp, result)


def _fma_specials(form: Format, operands: tuple[Bits, Bits, Bits], product_negative: Bits, result: Bits) -> Bits:
    """Infinities and NaNs in place of what the finite path made of them."""
    a, b, c = operands
    infinite_a, infinite_b, infinite_c = (_is_infinite(form, x) for x in operands)
    product = infinite_a | infinite_b
    invalid = (product & infinite_c & (product_negative != (c & form.bits.type(form.sign) != 0))) | (
        (infinite_a & (b << form.bits.type(1) == 0)) | (infinite_b & (a << form.bits.type(1) == 0))
    )
    invalid = invalid | is_nan(form, a) | is_nan(form, b) | is_nan(form, c)
    result = np.where(infinite_c, c, result)
    endless = form.bits.type(form.infinity) | (product_negative * form.bits.type(form.sign))
    result = np.where(product, endless, result)
    return _unless(invalid, nan_of(form, a, b, c), result, form)


def _unless(invalid: Bits, otherwise: Bits, result: Bits, form: Format) -> Bits:
    chosen: Bits = np.where(invalid, otherwise, result)
    return chosen.astype(form.bits, copy=False)


def divide(form: Format, rounding: str, a: Bits, b: Bits) -> Bits:
    """a / b with one rounding."""
    (sa, ea, ma), (sb, eb, mb) = decode(form, a), decode(form, b)
    divisor = np.maximum(mb >> _word(9), _ONE)
    remainder, quotient = ma >> _word(9), np.zeros_like(ma)
    # Significands have 53 bits: eleven bits of quotient a step still fit a word.
    for _ in range(6):
        digit = remainder // divisor
        quotient = (quotient << _word(11)) | digit
        remainder = (remainder - digit * divisor) << _word(11)
    exponent, significand = normalised(ea - eb - 55, quotient)
    significand = np.where(ma == 0, _word(0), significand | (remainder != 0))
    negative = sa ^ sb
    result = encode(form, rounding, negative, exponent, significand)
    sign = negative * form.bits.type(form.sign)
    infinite_a, infinite_b = _is_infinite(form, a), _is_infinite(form, b)
    zero_a, zero_b = a << form.bits.type(1) == 0, b << form.bits.type(1) == 0
    result = np.where(infinite_a | zero_b, form.bits.type(form.infinity) | sign, result)
    result = np.where(infinite_b, sign, result)
    invalid = is_nan(form, a) | is_nan(form, b) | (infinite_a & infinite_b) | (zero_a & zero_b)
    return _unless(invalid, nan_of(form, a, b), result, form)


def square_root(form: Format, rounding: str, a: Bits) -> Bits:
    """The square root with one rounding; -0 gives -0."""
    negative, exponent, significand = decode(form, a)
    exponent = exponent + 9
    odd = (exponent & 1).astype(U64)
    # The radicand in [2**104, 2**106): its root, in [2**52, 2**53), is found as a double and corrected.
    scaled = (significand >> _word(9)) << odd
    root = np.sqrt(scaled.astype(F64) * 2.0**52).astype(U64)
    want = (scaled >> _word(12), scaled << _word(52))
    high, low = _product(root, root)
    root = root - ((high > want[0]) | ((high == want[0]) & (low > want[1])))
    # The rest is at most twice the root: low words tell it. Past the root begins the upper half of the last place.
    rest = want[1] - root * root
    tail = ((rest > root).astype(U64) << _ONE) | (rest != 0)
    place, root = normalised(((exponent - odd.astype(I64) - 52) >> 1) - 2, (root << _word(2)) | tail)
    root = np.where(significand == 0, significand, root)
    result = encode(form, rounding, negative, place, root)
    result = np.where(_is_infinite(form, a), a, result)
    invalid = is_nan(form, a) | (negative & (significand != 0)) | (negative & _is_infinite(form, a))
    return _unless(invalid, nan_of(form, a), result, form)


def convert(source: Format, target: Format, rounding: str, a: Bits) -> Bits:
    """A number of one format in another; overflow as in `encode`. NaNs become the target's own, or its largest number.

    The payload of a NaN does not travel.
    """
    result = encode(target, rounding, *decode(source, a))
    if source.infinity is not None:
        sign = (np.asarray(a) & source.bits.type(source.sign) != 0) * target.bits.type(target.sign)
        infinity = target.largest if target.infinity is None else target.infinity
        result = np.where(_is_infinite(source, a), target.bits.type(infinity) | sign, result)
    nan = target.largest if target.nan is None else target.nan
    return _unless(is_nan(source, a), target.bits.type(nan), result, target)


def from_integer(target: Format, rounding: str, value: Bits) -> Bits:
    """int64 or uint64 numbers in the format."""
    negative = value < 0
    magnitude: Bits = np.where(negative, np.negative(value), value)
    return encode(target, rounding, negative, *normalised(np.zeros(np.shape(value), dtype=I64), magnitude.astype(U64)))
