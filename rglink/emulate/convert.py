"""cvt and cvt.pack: every pair of integers and f16, bf16, f32, f64; pairs of f16, bf16; tf32 and the narrow formats.

Semantics: PTX ISA 9.x, "cvt" and "cvt.pack". A NaN made an integer is zero, but the lowest negative number's pattern
where .f64 or a 64-bit integer is involved. Results have the width of the destination type (uint8 for 8 bits):
`extend` brings them to a wider register. Sources may come in wider registers. Payloads of NaNs pass from f32 to f64
and from bf16 to f32 only. Stochastic rounding (.rs) and ue8m0 are not supported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rglink.emulate import softfloat
from rglink.emulate.errors import Unsupported
from rglink.emulate.forms import (
    BITS,
    F32,
    F64,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    VALUE,
    Bits,
    Builder,
    Modifiers,
    Operation,
    operations,
    packed,
    spell,
    take,
)
from rglink.emulate.softfloat import (
    FORMATS,
    NUMBERS,
    ROUNDINGS,
    Format,
    flush,
    from_bf16,
    relu,
    saturate,
    settle,
    to_bf16,
    widen,
)

_INTEGERS = tuple(f"{k}{w}" for k in "us" for w in (8, 16, 32, 64))
_FLOATS = ("f16", "bf16", "f32", "f64")
_TO_INTEGER: Mapping[str, Operation] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_PAIRS = {"f16x2": "f16", "bf16x2": "bf16"}
_NARROW = {f"{name}x2": name for name in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")}
_TYPES = (*_INTEGERS, *_FLOATS, *_PAIRS, *_NARROW, "tf32")


def extend(bits: Bits, kind: str, register: np.dtype[Any]) -> Bits:
    """A result in a register wider than its type: sign-extended for s types, else zero-extended."""
    if bits.dtype == register:
        return bits
    return bits.view(VALUE[kind]).astype(register) if kind in VALUE else bits.astype(register)


def _low(bits: Bits, want: np.dtype[Any]) -> Bits:
    return bits if bits.dtype == want else bits.astype(want)


def _between_integers(target: str, source: str, sat: bool) -> Operation:
    before, value, bits, final = BITS[source], VALUE[source], BITS[target], VALUE[target]
    if not sat:
        return lambda a: _low(a, before).view(value).astype(final).view(bits)
    low = max(np.iinfo(final).min, np.iinfo(value).min)
    high = min(np.iinfo(final).max, np.iinfo(value).max)
    least, most = value.type(low), value.type(high)
    return lambda a: np.clip(_low(a, before).view(value), least, most).astype(final).view(bits)


def _from_integer(target: str, source: str, rounding: str, sat: bool) -> Operation:
    form, before, value = FORMATS[target], BITS[source], VALUE[source]
    if rounding == "rn" and target in ("f32", "f64"):
        number = NUMBERS[target]
        plain: Operation = lambda a: _low(a, before).view(value).astype(number).view(form.bits)  # noqa: E731
    else:
        wide = I64 if value.kind == "i" else U64
        plain = lambda a: softfloat.from_integer(form, rounding, _low(a, before).view(value).astype(wide))  # noqa: E731
    return (lambda a: saturate(form, plain(a))) if sat else plain


def _to_integer(target: str, source: str, rounding: str, ftz: bool) -> Operation:
    form, value, bits = FORMATS[source], VALUE[target], BITS[target]
    limits, to_whole = np.iinfo(value), _TO_INTEGER[rounding]
    of_nan = bits.type(0 if source != "f64" and bits != U64 else 1 << (8 * bits.itemsize - 1))

    passing = I64 if bits == U32 and value != I32 else I32
    least, most = float(limits.min), float(limits.max)

    def narrow(numbers: Bits) -> Bits:
        # The bounds are doubles, and astype truncates: .rzi needs no rounding of its own.
        whole = numbers if rounding == "rzi" else to_whole(numbers)
        return np.minimum(np.maximum(whole, least), most).astype(passing).astype(value, copy=False).view(bits)

    def wide(numbers: Bits) -> Bits:
        # `most` is the power of two above the greatest integer, which is no double.
        whole = to_whole(numbers)
        return np.where(whole >= most, value.type(limits.max), np.maximum(whole, least).astype(value)).view(bits)

    direct = wide if bits == U64 else narrow

    def convert(a: Bits) -> Bits:
        a = _low(a, form.bits)
        numbers = widen(form, flush(form, a) if ftz else a)
        result = direct(numbers)
        return np.where(numbers != numbers, of_nan, result) if softfloat.has_nan(numbers) else result

    return convert


def _rounded(target: Format, source: Format, rounding: str) -> Operation:
    """A float in another format by one rounding; "" where the target holds every value of the source."""
    if source.name == "bf16" and target.name == "f32":
        return lambda a: from_bf16(a).view(U32)
    if rounding in ("", "rn"):
        if target.name == "bf16" and source.width <= 32:
            return lambda a: to_bf16(
                from_bf16(a) if source.name == "bf16" else a.view(NUMBERS[source.name]).astype(F32)
            )
        if target.name in NUMBERS and (target.name, source.name) != ("f16", "f64"):
            number = NUMBERS[target.name]
            origin = F32 if source.width <= 32 else F64

            def by_numpy(a: Bits) -> Bits:
                numbers = from_bf16(a) if source.name == "bf16" else a.view(NUMBERS[source.name]).astype(origin)
                result = numbers.astype(number)
                return result.view(U64) if target.name == "f64" else settle(target, result)

            return by_numpy
    return lambda a: softfloat.convert(source, target, rounding or "rn", a)


def _whole(form: Format, rounding: str) -> Operation:
    """Rounded to an integral value in the same format."""
    to_whole = _TO_INTEGER[rounding]
    if form.name == "bf16":
        return lambda a: to_bf16(to_whole(from_bf16(a)))
    return lambda a: settle(form, to_whole(a.view(NUMBERS[form.name])), a)


def _satfinite(form: Format, bits: Bits) -> Bits:
    """Infinities as the largest number of their sign; NaNs stay."""
    sign = form.bits.type(form.sign)
    most = form.bits.type(form.largest)
    return np.where(
        softfloat.is_nan(form, bits), bits, (bits & sign) | np.minimum(bits & (sign - form.bits.type(1)), most)
    )


def _between_floats(name: str, modifiers: Modifiers, target: str, source: str, flags: frozenset[str]) -> Operation:
    form, origin = FORMATS[target], FORMATS[source]
    rounding = next((r for r in (*ROUNDINGS, *_TO_INTEGER) if r in flags), "")
    known = {rounding, "", "ftz", "sat", "relu", "satfinite"}
    if flags - known or (rounding in _TO_INTEGER and target != source) or (rounding in ROUNDINGS and target == source):
        raise Unsupported(f"{spell(name, modifiers)}: no such form")
    same: Operation = lambda a: a  # noqa: E731
    plain = (
        _whole(form, rounding)
        if rounding in _TO_INTEGER
        else same
        if target == source
        else _rounded(form, origin, rounding)
    )
    if not flags - {rounding}:
        return lambda a: plain(_low(a, origin.bits))

    def convert(a: Bits) -> Bits:
        a = _low(a, origin.bits)
        result: Bits = plain(flush(origin, a) if "ftz" in flags and source == "f32" else a)
        if "ftz" in flags and target == "f32":
            result = flush(form, result)
        if "satfinite" in flags:
            result = _satfinite(form, result)
        if "relu" in flags:
            result = relu(form, result)
        return saturate(form, result) if "sat" in flags else result

    return convert


def _pair(modifiers: Modifiers, target: str, flags: frozenset[str]) -> Operation:
    """Two f32 in one f16x2 or bf16x2: the first in the upper half."""
    one = _between_floats("cvt", modifiers, _PAIRS[target], "f32", flags)

    def convert(a: Bits, b: Bits) -> Bits:
        return (one(a).astype(U32) << np.uint32(16)) | one(b)

    return convert


_TF32 = np.uint32(0xFFFFE000)


def _tf32(modifiers: Modifiers, flags: frozenset[str]) -> Operation:
    """f32 to tf32: the low 13 bits of the pattern rounded away."""
    rounding = next((r for r in ("rna", "rn", "rz") if r in flags), "")
    if not rounding or flags - {rounding, "satfinite", "relu"} or (rounding == "rna" and "relu" in flags):
        raise Unsupported(f"{spell('cvt', modifiers)}: no such form")
    form = FORMATS["f32"]
    most = np.uint32(form.largest) & _TF32

    def convert(a: Bits) -> Bits:
        step: Bits | np.uint32 = np.uint32(0)
        if rounding == "rna":
            step = np.uint32(0x1000)
        elif rounding == "rn":
            step = np.uint32(0xFFF) + ((a >> np.uint32(13)) & np.uint32(1))
        result = (a + step) & _TF32
        if "satfinite" in flags:
            result = (result & np.uint32(form.sign)) | np.minimum(result & np.uint32(form.sign - 1), most)
        result = np.where(softfloat.is_nan(form, a), np.uint32(form.nan or 0), result)
        return relu(form, result) if "relu" in flags else result

    return convert


def _to_narrow(modifiers: Modifiers, target: str, source: str, flags: frozenset[str]) -> Operation:
    """Two numbers, of f32 operands (the first in the upper part) or one f16x2, in a pair of 8-, 6- or 4-bit formats."""
    form = FORMATS[_NARROW[target]]
    if flags - {"relu"} != {"rn", "satfinite"} or source not in ("f32", "f16x2"):
        raise Unsupported(f"{spell('cvt', modifiers)}: no such form")
    origin = FORMATS["f32" if source == "f32" else "f16"]

    def one(a: Bits) -> Bits:
        nan = softfloat.is_nan(origin, a)
        clear = (a & origin.bits.type(origin.sign) != 0) & ~nan
        result = softfloat.convert(
            origin, form, "rn", np.where(clear, origin.bits.type(0), a) if "relu" in flags else a
        )
        return result if form.infinity is None else np.where(nan, result, _satfinite(form, result))

    def joined(high: Bits, low: Bits) -> Bits:
        if form.width == 4:
            return (high << np.uint8(4)) | low
        return (high.astype(U16) << np.uint16(8)) | low

    def from_pair(a: Bits) -> Bits:
        halves = one(packed(a, U16))
        return joined(halves[..., 1], halves[..., 0])

    return from_pair if source == "f16x2" else lambda a, b: joined(one(a), one(b))


def _from_narrow(modifiers: Modifiers, target: str, source: str, flags: frozenset[str]) -> Operation:
    """A pair of 8-, 6- or 4-bit numbers as f16x2; every value is exact there."""
    form, result = FORMATS[_NARROW[source]], FORMATS["f16"]
    if target != "f16x2" or flags - {"relu"} != {"rn"}:
        raise Unsupported(f"{spell('cvt', modifiers)}: no such form")
    codes = softfloat.convert(form, result, "rn", np.arange(1 << form.width, dtype=U8))
    table = relu(result, codes) if "relu" in flags else codes
    mask, shift = (np.uint16(15), np.uint16(4)) if form.width == 4 else (np.uint16((1 << form.width) - 1), np.uint16(8))

    def convert(a: Bits) -> Bits:
        a = _low(a, U16)
        return (table[(a >> shift) & mask].astype(U32) << np.uint32(16)) | table[a & mask]

    return convert


def _pack(modifiers: Modifiers) -> Operation:
    """cvt.pack: two s32 clamped and packed, the second lowest, over the shifted-up third operand."""
    _pack_word, _sat, target, _source, third = take(
        "cvt", modifiers, ("pack",), ("sat",), ("u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"), ("s32",), ("", "b32")
    )
    width = int(target[1:])
    if (width == 16) == bool(third):
        raise Unsupported(f"{spell('cvt', modifiers)}: no such form")
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if target[0] == "s" else (0, (1 << width) - 1)
    least, most, mask = np.int32(low), np.int32(high), np.uint32((1 << width) - 1)

    def one(a: Bits) -> Bits:
        return np.clip(a.view(I32), least, most).view(U32) & mask

    def pack(a: Bits, b: Bits, *c: Bits) -> Bits:
        pair = (one(a) << np.uint32(width)) | one(b)
        return pair | (c[0] << np.uint32(2 * width)) if c else pair

    return pack


def _cvt(modifiers: Modifiers) -> Operation:
    if "pack" in modifiers:
        return _pack(modifiers)
    kinds = [m for m in modifiers if m in _TYPES]
    flags = frozenset(m for m in modifiers if m not in _TYPES)
    if len(kinds) != 2 or len(flags) + 2 != len(modifiers):
        raise Unsupported(f"{spell('cvt', modifiers)}: not two known types")
    target, source = kinds
    if target in _NARROW:
        return _to_narrow(modifiers, target, source, flags)
    if source in _NARROW:
        return _from_narrow(modifiers, target, source, flags)
    if target == "tf32" and source == "f32":
        return _tf32(modifiers, flags)
    if target in _PAIRS and source == "f32":
        return _pair(modifiers, target, flags)
    if target in _FLOATS and source in _FLOATS:
        return _between_floats("cvt", modifiers, target, source, flags)
    return _with_integer(modifiers, target, source)


def _with_integer(modifiers: Modifiers, target: str, source: str) -> Operation:
    roundings = ROUNDINGS if target in _FLOATS else tuple(_TO_INTEGER) if source in _FLOATS else ()
    rounding, ftz, sat, *_ = take(
        "cvt", modifiers, (*roundings, *(() if roundings else ("",))), ("", "ftz"), ("", "sat"), _TYPES, _TYPES
    )
    if {target, source} - {*_INTEGERS, *_FLOATS} or (ftz and "f32" not in (target, source)):
        raise Unsupported(f"{spell('cvt', modifiers)}: no such form")
    if target in _FLOATS:
        return _from_integer(target, source, rounding, bool(sat))
    if source in _FLOATS:
        return _to_integer(target, source, rounding, bool(ftz))
    return _between_integers(target, source, bool(sat))


BUILDERS: dict[str, Builder] = {"cvt": _cvt}
OPERATIONS = operations(BUILDERS)
