"""Integer and bit instructions of PTX: arithmetic, extended precision, logic, shifts.

Semantics: PTX ISA 9.x, chapters "Integer Arithmetic Instructions", "Extended-Precision Integer Arithmetic
Instructions" and "Logic and Shift Instructions". Division by zero is machine-specific there; here it gives all ones
for quotient and remainder, as the code that ptxas makes for 32-bit operands does. PTX has no 128-bit arithmetic;
its .b128 exists for moves, loads, stores and atomics alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rglink.emulate.bitfields import FIELDS
from rglink.emulate.errors import Unsupported
from rglink.emulate.forms import (
    BITS,
    DOUBLE,
    F64,
    I32,
    I64,
    U16,
    U32,
    U64,
    VALUE,
    Bits,
    Builder,
    Modifiers,
    Operation,
    by_parts,
    operations,
    spell,
    take,
)

_ARITHMETIC = tuple(f"{k}{w}" for k in "us" for w in (16, 32, 64))
_CARRYING = ("u32", "s32", "u64", "s64")
_LOGIC = ("pred", "b16", "b32", "b64")
_PACKED = {"u16x2": "u16", "s16x2": "s16"}
_LOW32 = np.uint64(0xFFFFFFFF)
_S32_MIN, _S32_MAX = np.int64(-(1 << 31)), np.int64((1 << 31) - 1)


def _saturate_s32(wide: Bits) -> Bits:
    return np.clip(wide, _S32_MIN, _S32_MAX).astype(I32).view(U32)


def _signed64(x: Bits) -> Bits:
    return x.view(I32).astype(I64)


def _sum_or_difference(name: str, ufunc: np.ufunc) -> Builder:
    def build(modifiers: Modifiers) -> Operation:
        cc, sat, kind = take(name, modifiers, ("", "cc"), ("", "sat"), (*_ARITHMETIC, *_PACKED))
        if kind in _PACKED and not cc and not sat:
            return by_parts(ufunc, U16, U32)
        if sat:
            if kind != "s32" or cc:
                raise Unsupported(f"{spell(name, modifiers)}: .sat is for .s32 without carry")
            return lambda a, b: _saturate_s32(ufunc(_signed64(a), _signed64(b)))
        if cc:
            if kind not in _CARRYING:
                raise Unsupported(f"{spell(name, modifiers)}: .cc is for 32 and 64 bits")
            return add_carry if name == "add" else subtract_carry
        return ufunc

    return build


def add_carry(a: Bits, b: Bits) -> tuple[Bits, Bits]:
    """a + b and its carry out (bool)."""
    total = a + b
    return total, total < a


def subtract_carry(a: Bits, b: Bits) -> tuple[Bits, Bits]:
    """a - b and the carry out of a + ~b + 1 (bool): true where nothing is borrowed.

    The PTX ISA speaks of a borrow in the carry flag, but ptxas and libNVVM's 128-bit division count on the carry: an
    `addc` after a `sub.cc` adds 1 where nothing was borrowed.
    """
    return a - b, a >= b


def _with_carry(name: str) -> Builder:
    def build(modifiers: Modifiers) -> Operation:
        cc, _kind = take(name, modifiers, ("", "cc"), _CARRYING)

        def chained(a: Bits, b: Bits, carry: Bits) -> Any:
            # a - b - borrow is a + ~b + carry.
            partial, first = add_carry(a, ~b if name == "subc" else b)
            total, second = add_carry(partial, carry.astype(partial.dtype))
            return (total, first | second) if cc else total

        return chained

    return build


def high_half(a: Bits, b: Bits, signed: bool) -> Bits:
    """Bits 127..64 of the product of 64-bit patterns."""
    a0, a1, b0, b1 = a & _LOW32, a >> np.uint64(32), b & _LOW32, b >> np.uint64(32)
    cross, other = a0 * b1, a1 * b0
    middle = ((a0 * b0) >> np.uint64(32)) + (cross & _LOW32) + (other & _LOW32)
    high = a1 * b1 + (cross >> np.uint64(32)) + (other >> np.uint64(32)) + (middle >> np.uint64(32))
    if signed:
        high = high - np.where(a.view(I64) < 0, b, np.uint64(0)) - np.where(b.view(I64) < 0, a, np.uint64(0))
    return high


def _product(mode: str, kind: str) -> Operation:
    value, bits = VALUE[kind], BITS[kind]
    if mode == "lo":
        return np.multiply
    if bits == U64:
        return lambda a, b: high_half(a, b, kind[0] == "s")
    wide, wide_bits, width = DOUBLE[value], DOUBLE[bits], 8 * bits.itemsize
    if mode == "wide":
        return lambda a, b: np.multiply(a.view(value).astype(wide), b.view(value).astype(wide)).view(wide_bits)
    shift = wide.type(width)
    return lambda a, b: ((a.view(value).astype(wide) * b.view(value).astype(wide)) >> shift).astype(bits)


def _mul(modifiers: Modifiers) -> Operation:
    mode, kind = take("mul", modifiers, ("lo", "hi", "wide"), _ARITHMETIC)
    if mode == "wide" and kind[1:] == "64":
        raise Unsupported(f"{spell('mul', modifiers)}: .wide is for 16 and 32 bits")
    return _product(mode, kind)


def _mad(modifiers: Modifiers) -> Operation:
    mode, cc, sat, kind = take("mad", modifiers, ("lo", "hi", "wide"), ("", "cc"), ("", "sat"), _ARITHMETIC)
    if (mode == "wide" and kind[1:] == "64") or (sat and (mode, kind, cc) != ("hi", "s32", "")):
        raise Unsupported(f"{spell('mad', modifiers)}: no such form")
    product = _product(mode, kind)
    if sat:
        return lambda a, b, c: _saturate_s32(_signed64(product(a, b)) + _signed64(c))
    if not cc:
        return lambda a, b, c: product(a, b) + c
    if kind not in _CARRYING or mode == "wide":
        raise Unsupported(f"{spell('mad', modifiers)}: .cc is for .lo and .hi of 32 and 64 bits")
    return lambda a, b, c: add_carry(product(a, b), c)


def _madc(modifiers: Modifiers) -> Operation:
    mode, cc, kind = take("madc", modifiers, ("lo", "hi"), ("", "cc"), _CARRYING)
    product, chained = _product(mode, kind), _with_carry("addc")(("cc", kind) if cc else (kind,))
    return lambda a, b, c, carry: chained(product(a, b), c, carry)


def _product24(kind: str, mode: str) -> Operation:
    shift = np.int64(16 if mode == "hi" else 0)

    def product(a: Bits, b: Bits) -> Bits:
        if kind == "s32":
            x, y = (((v << np.uint32(8)).view(I32) >> np.int32(8)).astype(I64) for v in (a, b))
        else:
            x, y = ((v & np.uint32(0xFFFFFF)).astype(I64) for v in (a, b))
        return ((x * y) >> shift).astype(U32)

    return product


def _mul24(modifiers: Modifiers) -> Operation:
    mode, kind = take("mul24", modifiers, ("lo", "hi"), ("u32", "s32"))
    return _product24(kind, mode)


def _mad24(modifiers: Modifiers) -> Operation:
    mode, sat, kind = take("mad24", modifiers, ("lo", "hi"), ("", "sat"), ("u32", "s32"))
    product = _product24(kind, mode)
    if not sat:
        return lambda a, b, c: product(a, b) + c
    if (mode, kind) != ("hi", "s32"):
        raise Unsupported(f"{spell('mad24', modifiers)}: .sat is for .hi and .s32")
    return lambda a, b, c: _saturate_s32(_signed64(product(a, b)) + _signed64(c))


def _sad(modifiers: Modifiers) -> Operation:
    (kind,) = take("sad", modifiers, _ARITHMETIC)
    value, bits = VALUE[kind], BITS[kind]

    def sad(a: Bits, b: Bits, c: Bits) -> Bits:
        x, y = a.view(value), b.view(value)
        return c + (np.maximum(x, y).view(bits) - np.minimum(x, y).view(bits))

    return sad


def _divide(a: Bits, b: Bits) -> Bits:
    """Quotient rounded to zero; the most negative number by -1 wraps to itself."""
    if a.dtype.kind == "u":
        return np.floor_divide(a, b)
    if a.dtype != I64:
        # A quotient of doubles lies on the right side of every whole number, and is made faster than one of integers.
        return np.trunc(np.where(b == 0, 0.0, a.astype(F64) / b)).astype(I64).astype(a.dtype)
    exact = np.where(b == -1, np.negative(a), np.floor_divide(a - np.fmod(a, b), b))
    return exact.astype(np.result_type(a, b), copy=False)


def _remainder(a: Bits, b: Bits) -> Bits:
    return np.where(b == -1, a.dtype.type(0), np.fmod(a, b)) if a.dtype.kind == "i" else np.remainder(a, b)


def _division(name: str, ufunc: Operation) -> Builder:
    def build(modifiers: Modifiers) -> Operation:
        (kind,) = take(name, modifiers, _ARITHMETIC)
        value, bits = VALUE[kind], BITS[kind]
        ones = bits.type(np.iinfo(bits).max)

        def divide(a: Bits, b: Bits) -> Bits:
            result = ufunc(a.view(value), b.view(value)).view(bits)
            return result if np.all(b) else np.where(b == 0, ones, result)

        return divide

    return build


def _extremum(name: str, ufunc: np.ufunc) -> Builder:
    def build(modifiers: Modifiers) -> Operation:
        relu, kind = take(name, modifiers, ("", "relu"), (*_ARITHMETIC, *_PACKED))
        value, bits = VALUE[_PACKED.get(kind, kind)], BITS[_PACKED.get(kind, kind)]
        if relu and kind not in ("s32", "s16x2"):
            raise Unsupported(f"{spell(name, modifiers)}: .relu is for .s32 and .s16x2")
        if relu:
            zero = value.type(0)
            plain: Operation = lambda a, b: np.maximum(ufunc(a.view(value), b.view(value)), zero).view(bits)  # noqa: E731
        elif kind[0] == "u":
            plain = ufunc
        else:
            plain = lambda a, b: ufunc(a.view(value), b.view(value)).view(bits)  # noqa: E731
        return by_parts(plain, bits, U32) if kind in _PACKED else plain

    return build


def _sign_change(name: str, ufunc: np.ufunc) -> Builder:
    def build(modifiers: Modifiers) -> Operation:
        (kind,) = take(name, modifiers, ("s16", "s32", "s64"))
        value, bits = VALUE[kind], BITS[kind]
        return lambda a: ufunc(a.view(value)).view(bits)

    return build


def _logic(name: str, ufunc: np.ufunc) -> Builder:
    def build(modifiers: Modifiers) -> Operation:
        take(name, modifiers, _LOGIC)
        return ufunc

    return build


def _cnot(modifiers: Modifiers) -> Operation:
    (kind,) = take("cnot", modifiers, _LOGIC[1:])
    return lambda a: (a == 0).astype(BITS[kind])


def _shift(name: str) -> Builder:
    """Shifts by a .u32 amount, clamped to the width: NumPy's shifts by the width and more give 0 or the sign too."""

    def build(modifiers: Modifiers) -> Operation:
        left = name == "shl"
        kinds = _LOGIC[1:] if left else (*_LOGIC[1:], *_ARITHMETIC)
        (kind,) = take(name, modifiers, kinds)
        value, bits = VALUE[kind], BITS[kind]
        ufunc: np.ufunc = np.left_shift if left else np.right_shift
        if kind in ("b32", "u32"):
            return ufunc
        if bits == U16:
            most = np.uint32(16)
            return lambda a, n: ufunc(a.view(value), np.minimum(n, most).astype(value)).astype(value).view(bits)
        if kind == "s32":
            return lambda a, n: (a.view(I32) >> n.view(I32)).view(U32)
        return lambda a, n: ufunc(a.view(value), n.astype(value)).view(bits)

    return build


def _shf(modifiers: Modifiers) -> Operation:
    side, mode, _kind = take("shf", modifiers, ("l", "r"), ("clamp", "wrap"), ("b32",))

    def funnel(a: Bits, b: Bits, c: Bits) -> Bits:
        amount = (np.minimum(c, np.uint32(32)) if mode == "clamp" else c & np.uint32(31)).astype(U64)
        both = (b.astype(U64) << np.uint64(32)) | a
        return ((both << amount) >> np.uint64(32) if side == "l" else both >> amount).astype(U32)

    return funnel


BUILDERS: dict[str, Builder] = {
    "add": _sum_or_difference("add", np.add),
    "sub": _sum_or_difference("sub", np.subtract),
    "addc": _with_carry("addc"),
    "subc": _with_carry("subc"),
    "mul": _mul,
    "mad": _mad,
    "madc": _madc,
    "mul24": _mul24,
    "mad24": _mad24,
    "sad": _sad,
    "div": _division("div", _divide),
    "rem": _division("rem", _remainder),
    "abs": _sign_change("abs", np.abs),
    "neg": _sign_change("neg", np.negative),
    "min": _extremum("min", np.minimum),
    "max": _extremum("max", np.maximum),
    "and": _logic("and", np.bitwise_and),
    "or": _logic("or", np.bitwise_or),
    "xor": _logic("xor", np.bitwise_xor),
    "not": _logic("not", np.invert),
    "cnot": _cnot,
    "shl": _shift("shl"),
    "shr": _shift("shr"),
    "shf": _shf,
    **FIELDS,
}
OPERATIONS = operations(BUILDERS)
