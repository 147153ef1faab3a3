"""Warp-wide matrix instructions: mma.sync, and the layouts of ldmatrix, stmatrix and movmatrix.

Fragments are arrays [warps, 32, registers] of the bit patterns in the lanes' registers: uint32, uint64 for f64.
Layouts: PTX ISA 9.x, "Matrix Fragments for mma"; with `group` = lane / 4 and `within` = lane % 4, and `e` elements in a
register, all its shapes but m8n8k4 of f16 follow one rule each for A, B and the accumulators (see `Shape`).

Order of accumulation: a device does not say its own. Here products are exact; for f16, bf16 and tf32 the sum of the
products and the accumulator is formed in float64, k ascending from the accumulator, and rounded once to f32 (or f16):
at least as exact as the f32 sum that PTX asks for ("at least single precision"). f64 is a chain of fused
multiply-adds, k ascending. Integers are exact, wrapped or with .satfinite clamped at the end. Subnormals count.
tf32 operands are read as a device does: the low 13 bits of the pattern do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rglink.emulate import softfloat
from rglink.emulate.errors import Unsupported
from rglink.emulate.forms import (
    F32,
    F64,
    I32,
    I64,
    U16,
    U32,
    U64,
    Bits,
    Builder,
    Modifiers,
    Operation,
    operations,
    spell,
    take,
)
from rglink.emulate.softfloat import FORMATS

_LANES = np.arange(32)
_GROUP, _WITHIN = _LANES // 4, _LANES % 4
# Bits of one element by multiplicand type; elements of 32 bits and less are packed in 32-bit registers.
_ELEMENT = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "e4m3": 8, "e5m2": 8}
_SHAPES: Mapping[str, tuple[str, ...]] = {
    "f16": ("m16n8k8", "m16n8k16"),
    "bf16": ("m16n8k8", "m16n8k16"),
    "tf32": ("m16n8k4", "m16n8k8"),
    "f64": ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
    "8": ("m8n8k16", "m16n8k16", "m16n8k32"),
    "4": ("m8n8k32", "m16n8k32", "m16n8k64"),
    "f8": ("m16n8k16", "m16n8k32"),
}


@dataclass(frozen=True)
class Shape:
    """m x n x k of one instruction, and where its fragments lie."""

    m: int
    n: int
    k: int

    def a(self, element: int) -> tuple[Bits, Bits]:
        """Row and column of each element of A: arrays [32, registers, elements in a register]."""
        rows = self.m // 8
        each = max(1, 32 // element)
        register, inside = np.arange(rows * self.k // (4 * each)), np.arange(each)
        row = _GROUP[:, None, None] + 8 * (register % rows)[None, :, None] + 0 * inside
        column = _WITHIN[:, None, None] * each + inside + 4 * each * (register // rows)[None, :, None]
        return row, column

    def b(self, element: int) -> tuple[Bits, Bits]:
        """Row (k) and column (n) of each element of B."""
        each = max(1, 32 // element)
        register, inside = np.arange(self.k // (4 * each)), np.arange(each)
        row = _WITHIN[:, None, None] * each + inside + 4 * each * register[None, :, None]
        return row, _GROUP[:, None, None] + 0 * row

    def accumulator(self, element: int) -> tuple[Bits, Bits]:
        """Row and column of each element of C and D: two neighbours in a row, then eight rows below."""
        each = 2 if element == 16 else 1
        index = np.arange(self.m // 4).reshape(-1, each)
        row = _GROUP[:, None, None] + 8 * (index // 2)[None]
        return row, 2 * _WITHIN[:, None, None] + (index % 2)[None]


def _shape(text: str) -> Shape:
    m, rest = text[1:].split("n")
    n, k = rest.split("k")
    return Shape(int(m), int(n), int(k))


def elements(fragment: Bits, width: int) -> Bits:
    """The elements of registers, lowest first: [warps, 32, registers] becomes [..., elements in a register]."""
    if width >= 32:
        return fragment[..., None]
    if width >= 8:
        return np.ascontiguousarray(fragment)[..., None].view(f"u{width // 8}")
    return (fragment[..., None] >> (np.arange(8, dtype=U32) * U32.type(4))) & U32.type(15)


def gather(fragment: Bits, place: tuple[Bits, Bits], size: tuple[int, int], width: int) -> Bits:
    """The matrix [warps, rows, columns] of patterns that a fragment holds."""
    parts = elements(fragment, width)
    matrix = np.zeros((fragment.shape[0], *size), dtype=parts.dtype)
    matrix[:, place[0], place[1]] = parts
    return matrix


def scatter(matrix: Bits, place: tuple[Bits, Bits]) -> Bits:
    """The fragment of a matrix of patterns: the inverse of `gather`, for elements of 16 bits and more."""
    parts = np.ascontiguousarray(matrix[:, place[0], place[1]])
    return parts.view(U32)[..., 0] if parts.dtype == U16 else parts[..., 0]


def _numbers(kind: str, patterns: Bits) -> Bits:
    """The values of multiplicands, as float64 or int64."""
    if kind in ("s4", "s8"):
        shift = I64.type(64 - _ELEMENT[kind])
        return (patterns.astype(I64) << shift) >> shift
    if kind in ("u4", "u8"):
        return patterns.astype(I64)
    if kind == "tf32":
        return (patterns & U32.type(0xFFFFE000)).view(F32).astype(F64)
    if kind in ("e4m3", "e5m2"):
        return softfloat.convert(FORMATS[kind], FORMATS["f64"], "rn", patterns).view(F64)
    return softfloat.widen(FORMATS[kind], patterns)


def multiply(kinds: tuple[str, str], sums: tuple[str, str], satfinite: bool, a: Bits, b: Bits, c: Bits) -> Bits:
    """A B + C of pattern matrices [warps, m, k], [warps, k, n], [warps, m, n].

    `kinds` are the types of A and B, `sums` those of the result and of C; the result is in patterns too.
    """
    result, addend = sums
    if result == "f64":
        total = c
        for k in range(a.shape[2]):
            total = softfloat.multiply_add(FORMATS["f64"], "rn", a[:, :, k, None], b[:, None, k, :], total)
        return total
    x, y = _numbers(kinds[0], a), _numbers(kinds[1], b)
    if result == "s32":
        exact = c.view(I32).astype(I64) + np.einsum("wmk,wkn->wmn", x, y)
        if satfinite:
            exact = np.clip(exact, -(1 << 31), (1 << 31) - 1)
        return exact.astype(I32).view(U32)
    total = softfloat.widen(FORMATS[addend], c)
    for k in range(a.shape[2]):
        total = total + x[:, :, k, None] * y[:, None, k, :]
    if result == "f32":
        return softfloat.settle(FORMATS["f32"], total.astype(F32))
    return softfloat.convert(FORMATS["f64"], FORMATS["f16"], "rn", total.view(U64))


def _family(kind: str) -> str:
    return "f8" if kind in ("e4m3", "e5m2") else kind[1:] if kind[0] in "su" else kind


def _mma(modifiers: Modifiers) -> Operation:
    """(a, b, c) to d, all fragments."""
    shapes = tuple(sorted({s for group in _SHAPES.values() for s in group}))
    _sync, _aligned, shape_text, _row, _col, option, result, kind_a, kind_b, kind_c = take(
        "mma",
        modifiers,
        ("sync",),
        ("aligned",),
        shapes,
        ("row",),
        ("col",),
        ("", "satfinite", "rn"),
        ("f16", "f32", "f64", "s32"),
        tuple(_ELEMENT),
        tuple(_ELEMENT),
        ("f16", "f32", "f64", "s32"),
    )
    family = _family(kind_a)
    sums = {"f64": ("f64",), "8": ("s32",), "4": ("s32",), "f16": ("f16", "f32"), "f8": ("f16", "f32")}
    allowed = sums.get(family, ("f32",))
    mixed = family in ("8", "4", "f8")
    if shape_text not in _SHAPES[family] or result not in allowed or kind_c not in allowed or _family(kind_b) != family:
        raise Unsupported(f"{spell('mma', modifiers)}: no such form")
    if (kind_a != kind_b and not mixed) or option not in ("", {"s32": "satfinite", "f64": "rn"}.get(result, "")):
        raise Unsupported(f"{spell('mma', modifiers)}: no such form")
    return _plan(shape_text, (kind_a, kind_b), result, kind_c, option == "satfinite")


@cache
def _plan(shape_text: str, kinds: tuple[str, str], result: str, addend: str, satfinite: bool) -> Operation:
    shape, width = _shape(shape_text), _ELEMENT[kinds[0]]
    places, size = (shape.a(width), shape.b(width)), (shape.m, shape.n)
    before, after = (16 if kind == "f16" else 32 if kind != "f64" else 64 for kind in (addend, result))

    def mma(a: Bits, b: Bits, c: Bits) -> Bits:
        left = gather(a, places[0], (shape.m, shape.k), width)
        right = gather(b, places[1], (shape.k, shape.n), width)
        start = gather(c, shape.accumulator(before), size, before)
        return scatter(multiply(kinds, (result, addend), satfinite, left, right, start), shape.accumulator(after))

    return mma


def matrix_rows(count: int) -> Bits:
    """The lane that holds the address of each row, [matrices, 8], of ldmatrix and stmatrix .m8n8 (.x1, .x2, .x4)."""
    return np.arange(8 * count).reshape(count, 8)


def load_fragments(rows: Bits, transpose: bool = False) -> Bits:
    """ldmatrix .m8n8.b16: rows [warps, matrices, 8, 8] of uint16, as read, to fragments [warps, 32, matrices]."""
    matrices = np.swapaxes(rows, 2, 3) if transpose else rows
    pairs = np.ascontiguousarray(matrices).view(U32)
    return np.ascontiguousarray(np.moveaxis(pairs.reshape(*pairs.shape[:2], 32), 1, 2))


def store_rows(fragments: Bits, transpose: bool = False) -> Bits:
    """stmatrix .m8n8.b16: fragments [warps, 32, matrices] to the rows [warps, matrices, 8, 8] of uint16 to write."""
    warps, _lanes, count = fragments.shape
    rows = np.ascontiguousarray(np.moveaxis(fragments, 2, 1)).view(U16).reshape(warps, count, 8, 8)
    return np.ascontiguousarray(np.swapaxes(rows, 2, 3)) if transpose else rows


def _movmatrix(modifiers: Modifiers) -> Operation:
    """Fragments [warps, 32, 1] to those of the transposed 8x8 matrix of 16-bit elements."""
    take("movmatrix", modifiers, ("sync",), ("aligned",), ("m8n8",), ("trans",), ("b16",))
    return lambda a: load_fragments(store_rows(a), transpose=True)


BUILDERS: dict[str, Builder] = {"mma": _mma, "movmatrix": _movmatrix}
OPERATIONS: Mapping[str, Any] = operations(BUILDERS)
