"""Bit-field, byte and bit-count instructions of PTX, and its small dot products.

Semantics: PTX ISA 9.x, "Integer Arithmetic Instructions" (popc to dp2a), lop3 and prmt. Counts and positions are .u32.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from rglink.emulate.forms import (
    BITS,
    F64,
    I32,
    I64,
    U8,
    U32,
    U64,
    VALUE,
    Bits,
    Builder,
    Modifiers,
    Operation,
    packed,
    take,
)

_FIELD = ("u32", "s32", "u64", "s64")
_NONE = np.uint32(0xFFFFFFFF)
_BYTE = np.uint32(0xFF)


def leading_zeros(a: Bits) -> Bits:
    """Leading zero bits of uint32 or uint64, as uint64; the width for zero."""
    if a.dtype == U64:
        # Without its lower neighbour the top bit is not rounded up to the next power of two.
        a, top = a & ~(a >> np.uint64(1)), 64
    else:
        top = 32
    return np.minimum(np.uint64(1022 + top) - (a.astype(F64).view(U64) >> np.uint64(52)), np.uint64(top))


def _popc(modifiers: Modifiers) -> Operation:
    take("popc", modifiers, ("b32", "b64"))
    return lambda a: np.bitwise_count(a).astype(U32)


def _clz(modifiers: Modifiers) -> Operation:
    take("clz", modifiers, ("b32", "b64"))
    return lambda a: leading_zeros(a).astype(U32)


def _bfind(modifiers: Modifiers) -> Operation:
    shiftamt, kind = take("bfind", modifiers, ("", "shiftamt"), _FIELD)
    value, bits = VALUE[kind], BITS[kind]
    top = np.uint32(8 * bits.itemsize - 1)

    def find(a: Bits) -> Bits:
        if kind[0] == "s":
            signed = a.view(value)
            a = (signed ^ (signed >> value.type(top))).view(bits)
        zeros = leading_zeros(a).astype(U32)
        return np.where(a == 0, _NONE, zeros if shiftamt else top - zeros)

    return find


def _fns(modifiers: Modifiers) -> Operation:
    take("fns", modifiers, ("b32",))

    def find(mask: Bits, base: Bits, offset: Bits) -> Bits:
        mask, base, offset = np.broadcast_arrays(mask, base, offset)
        step = offset.view(I32).astype(I64)
        positions = np.arange(32, dtype=I64)
        start = base.astype(I64)[..., None]
        inside = np.where(step[..., None] < 0, positions <= start, positions >= start)
        inside = np.where(step[..., None] == 0, positions == start, inside)
        found = ((mask[..., None] >> positions.astype(U32)) & np.uint32(1)).astype(bool) & inside
        forward = np.cumsum(found, axis=-1)
        backward = forward[..., -1:] - forward + found
        order = np.where(step[..., None] < 0, backward, forward)
        hit = found & (order == np.maximum(np.abs(step), 1)[..., None])
        return np.where(hit.any(axis=-1), hit.argmax(axis=-1), int(_NONE)).astype(U32)

    return find


def _brev(modifiers: Modifiers) -> Operation:
    (kind,) = take("brev", modifiers, ("b32", "b64"))
    scalar = BITS[kind].type
    ones = int(np.iinfo(BITS[kind]).max)
    steps = [(scalar(n), scalar(ones // 255 * mask)) for n, mask in ((1, 0x55), (2, 0x33), (4, 0x0F))]

    def reverse(a: Bits) -> Bits:
        for shift, mask in steps:
            a = ((a >> shift) & mask) | ((a & mask) << shift)
        return a.byteswap()

    return reverse


def _bfe(modifiers: Modifiers) -> Operation:
    (kind,) = take("bfe", modifiers, _FIELD)
    value, bits = VALUE[kind], BITS[kind]
    width, one = bits.type(8 * bits.itemsize), bits.type(1)

    def unsigned(a: Bits, start: Bits, length: Bits) -> Bits:
        # A shift by the width or more gives 0, so that a long field has the mask 0 - 1.
        mask = (one << (length & _BYTE).astype(bits)) - one
        return (a >> (start & _BYTE).astype(bits)) & mask

    def signed(a: Bits, start: Bits, length: Bits) -> Bits:
        start, length = (start & _BYTE).astype(bits), (length & _BYTE).astype(bits)
        up = width - np.minimum(start + length, width)
        field = ((a << up).view(value) >> (up + start).view(value)).view(bits)
        return np.where(length == 0, bits.type(0), field)

    return signed if kind[0] == "s" else unsigned


def _bfi(modifiers: Modifiers) -> Operation:
    (kind,) = take("bfi", modifiers, ("b32", "b64"))
    bits = BITS[kind]
    one = bits.type(1)

    def insert(a: Bits, b: Bits, start: Bits, length: Bits) -> Bits:
        start = (start & _BYTE).astype(bits)
        mask = ((one << (length & _BYTE).astype(bits)) - one) << start
        return (b & ~mask) | ((a << start) & mask)

    return insert


def _szext(modifiers: Modifiers) -> Operation:
    mode, kind = take("szext", modifiers, ("clamp", "wrap"), ("u32", "s32"))

    def extend(a: Bits, b: Bits) -> Bits:
        count = b & np.uint32(31)
        up = (np.uint32(32) - count) & np.uint32(31)
        value = VALUE[kind]
        result = ((a << up).view(value) >> up.view(value)).view(U32)
        result = np.where(count == 0, np.uint32(0), result)
        return np.where(b >= 32, a, result) if mode == "clamp" else result

    return extend


def _bmsk(modifiers: Modifiers) -> Operation:
    mode, _kind = take("bmsk", modifiers, ("clamp", "wrap"), ("b32",))
    one = np.uint64(1)

    def mask(a: Bits, b: Bits) -> Bits:
        if mode == "wrap":
            a, b = a & np.uint32(31), b & np.uint32(31)
        else:
            b = np.minimum(b, np.uint32(32))
        return (((one << b.astype(U64)) - one) << a.astype(U64)).astype(U32)

    return mask


# Source bytes of target bytes 0 to 3 by the two low bits of the control: PTX ISA, prmt.
_PERMUTE: dict[str, tuple[tuple[int, int, int, int], ...]] = {
    "f4e": ((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)),
    "b4e": ((0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)),
    "rc16": ((0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)),
}


def _prmt(modifiers: Modifiers) -> Operation:
    mode, _kind = take("prmt", modifiers, ("", *_PERMUTE), ("b32",))
    table = np.array(_PERMUTE.get(mode, ()), dtype=U64)

    def by_constant(a: Bits, b: Bits, control: int) -> Bits:
        result = np.uint32(0)
        for i in range(4):
            code = int(table[control & 3, i]) if mode else control >> (4 * i) & 15
            picked = ((b if code & 4 else a) >> np.uint32(8 * (code & 3))) & _BYTE
            picked = (picked >> np.uint32(7)) * _BYTE if code & 8 else picked
            result = result | (picked << np.uint32(8 * i))
        return result

    def permute(a: Bits, b: Bits, c: Bits) -> Bits:
        if np.ndim(c) == 0:
            return by_constant(a, b, int(c))
        source = (b.astype(U64) << np.uint64(32)) | a
        result = np.uint32(0)
        for i in range(4):
            if mode:
                picked = (source >> (table[:, i][c & np.uint32(3)] << np.uint64(3))).astype(U32) & _BYTE
            else:
                control = (c >> np.uint32(4 * i)) & np.uint32(15)
                picked = (source >> ((control & np.uint32(7)) << np.uint32(3)).astype(U64)).astype(U32) & _BYTE
                picked = np.where(control > 7, (picked >> np.uint32(7)) * _BYTE, picked)
            result = result | (picked << np.uint32(8 * i))
        return result

    return permute


# The sixteen functions of b and c by their column of the truth table, where b is 0b1100 and c 0b1010.
_OF_TWO: tuple[Operation, ...] = (
    lambda b, c: np.uint32(0),
    lambda b, c: ~(b | c),
    lambda b, c: ~b & c,
    lambda b, c: ~b,
    lambda b, c: b & ~c,
    lambda b, c: ~c,
    lambda b, c: b ^ c,
    lambda b, c: ~(b & c),
    lambda b, c: b & c,
    lambda b, c: ~(b ^ c),
    lambda b, c: c,
    lambda b, c: ~b | c,
    lambda b, c: b,
    lambda b, c: b | ~c,
    lambda b, c: b | c,
    lambda b, c: _NONE,
)


@lru_cache(maxsize=256)
def lookup(table: int) -> Operation:
    """The function of three 32-bit patterns that lop3's table (0 to 255) stands for."""
    without, differs = _OF_TWO[table & 15], _OF_TWO[(table & 15) ^ (table >> 4)]
    if (table & 15) == table >> 4:
        return lambda a, b, c: without(b, c) + np.zeros_like(a | b | c)
    return lambda a, b, c: without(b, c) ^ (a & differs(b, c))


def _lop3(modifiers: Modifiers) -> Operation:
    combine, _kind = take("lop3", modifiers, ("", "or", "and"), ("b32",))

    def logic(a: Bits, b: Bits, c: Bits, table: Any) -> Bits:
        result: Bits = lookup(int(table) & 255)(a, b, c)
        return result

    def with_predicate(a: Bits, b: Bits, c: Bits, table: Any, q: Bits) -> tuple[Bits, Bits]:
        result = logic(a, b, c, table)
        return result, (result != 0) | q if combine == "or" else (result != 0) & q

    return with_predicate if combine else logic


def _dp4a(modifiers: Modifiers) -> Operation:
    left, right = (VALUE[kind[0] + "8"] for kind in take("dp4a", modifiers, ("u32", "s32"), ("u32", "s32")))

    def dot(a: Bits, b: Bits, c: Bits) -> Bits:
        products = packed(a, U8).view(left).astype(I32) * packed(b, U8).view(right)
        return products.sum(axis=-1, dtype=I32).view(U32) + c

    return dot


def _dp2a(modifiers: Modifiers) -> Operation:
    mode, *kinds = take("dp2a", modifiers, ("lo", "hi"), ("u32", "s32"), ("u32", "s32"))
    left, right = VALUE[kinds[0][0] + "16"], VALUE[kinds[1][0] + "8"]
    half = slice(0, 2) if mode == "lo" else slice(2, 4)

    def dot(a: Bits, b: Bits, c: Bits) -> Bits:
        products = packed(a, left).astype(I32) * packed(b, right)[..., half]
        return products.sum(axis=-1, dtype=I32).view(U32) + c

    return dot


FIELDS: dict[str, Builder] = {
    "popc": _popc,
    "clz": _clz,
    "bfind": _bfind,
    "fns": _fns,
    "brev": _brev,
    "bfe": _bfe,
    "bfi": _bfi,
    "szext": _szext,
    "bmsk": _bmsk,
    "prmt": _prmt,
    "lop3": _lop3,
    "dp4a": _dp4a,
    "dp2a": _dp2a,
}
