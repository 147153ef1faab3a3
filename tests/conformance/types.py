"""Rust's scalar types as the conformance crate passes them: sizes, and values worth trying."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Scalar:
    """A type: `kind` is "u", "s", "f", "b" (bool), "c" (char) or "n" (a u32 that counts bits of a value)."""

    name: str
    kind: str
    bits: int

    @property
    def size(self) -> int:
        """Bytes of a value."""
        return self.bits // 8


SCALARS = {
    scalar.name: scalar
    for scalar in (
        *(Scalar(f"u{bits}", "u", bits) for bits in (8, 16, 32, 64, 128)),
        *(Scalar(f"i{bits}", "s", bits) for bits in (8, 16, 32, 64, 128)),
        *(Scalar(f"f{bits}", "f", bits) for bits in (16, 32, 64)),
        Scalar("usize", "u", 64),
        Scalar("isize", "s", 64),
        Scalar("bool", "b", 8),
        Scalar("char", "c", 32),
    )
}
INTEGERS = tuple(name for name, scalar in SCALARS.items() if scalar.kind in "us" and name[-1] != "e")
FLOATS = ("f16", "f32", "f64")
# Significand bits without the leading one, by width.
FRACTION = {16: 10, 32: 23, 64: 52}


def result_shape(result: str) -> tuple[Scalar, int]:
    """The element type and count of a result: `u8`, `[f32; 2]`."""
    found = re.fullmatch(r"\[(\w+); (\d+)\]", result)
    return (SCALARS[found[1]], int(found[2])) if found else (SCALARS[result], 1)


def argument_values(spec: str, rows: int, rng: np.random.Generator) -> Bytes:
    """Values for an argument, shape (rows, size): `spec` is a type, or `n8` for counts around 8 bits."""
    if spec[0] == "n":
        return _counts(int(spec[1:]), rows, rng)
    scalar = SCALARS[spec]
    if scalar.kind == "b":
        return rng.integers(0, 2, (rows, 1), np.uint8)
    if scalar.kind == "c":
        return _chars(rows, rng)
    values = _float_values(scalar, rows, rng) if scalar.kind == "f" else _integer_values(scalar, rows, rng)
    edges = edge_values(scalar)
    picked = rng.random(rows) < 0.3
    values[picked] = edges[rng.integers(0, len(edges), int(picked.sum()))]
    return values


def edge_values(scalar: Scalar) -> Bytes:
    """Values at which operations turn, shape (count, size)."""
    numbers = _float_edges(scalar) if scalar.kind == "f" else _integer_edges(scalar)
    mask = (1 << scalar.bits) - 1
    data = b"".join((number & mask).to_bytes(scalar.size, "little") for number in numbers)
    return np.frombuffer(data, np.uint8).reshape(-1, scalar.size)


def _integer_edges(scalar: Scalar) -> list[int]:
    bits = scalar.bits
    top, half = 1 << bits, 1 << bits - 1
    found = {
        0,
        1,
        2,
        3,
        7,
        10,
        100,
        top - 1,
        top - 2,
        top - 10,
        half - 1,
        half,
        half + 1,
        half - 2,
        top // 3,
        half // 3,
    }
    # Both sides of every smaller width and of the floats' exact integers.
    for width in (7, 8, 15, 16, 24, 31, 32, 53, 63, 64):
        if width < bits:
            found |= {(1 << width) - 1, 1 << width, (1 << width) + 1, top - (1 << width), top - (1 << width) - 1}
    return sorted(found)


def _float_edges(scalar: Scalar) -> list[int]:
    fraction = FRACTION[scalar.bits]
    exponent_mask = (1 << scalar.bits - 1 - fraction) - 1
    bias = exponent_mask >> 1
    one, infinity, quiet = bias << fraction, exponent_mask << fraction, 1 << fraction - 1
    found = {0, 1, 2, (1 << fraction) - 1, 1 << fraction, (1 << fraction) + 1, one, one + 1, one - 1}
    found |= {infinity, infinity - 1, infinity | quiet, infinity | 1, infinity | quiet | 5}
    for power in (-1, 1, 7, 8, 15, 16, 31, 32, 63, 64, 127, fraction - 1, fraction, fraction + 1):
        if power < bias:
            bits = power + bias << fraction
            found |= {bits, bits - 1, bits + 1, bits | 1 << fraction - 1}
    sign = 1 << scalar.bits - 1
    return sorted(found | {bits | sign for bits in found})


def _integer_values(scalar: Scalar, rows: int, rng: np.random.Generator) -> Bytes:
    """Uniform bits, a third of them shortened to a random width, with either sign."""
    size = scalar.size
    values = rng.integers(0, 256, (rows, size), np.uint8)
    limit = rng.integers(1, size + 1, rows)
    short = rng.random(rows) < 0.4
    fill = np.where(rng.random(rows) < 0.3, 255, 0).astype(np.uint8)
    cut = short[:, None] & (np.arange(size)[None, :] >= limit[:, None])
    return np.where(cut, fill[:, None], values).astype(np.uint8)


def _float_values(scalar: Scalar, rows: int, rng: np.random.Generator) -> Bytes:
    """A third uniform bits, a third near 1, a third small integers and halves."""
    size, dtype = scalar.size, np.dtype(f"f{scalar.size}")
    values = rng.integers(0, 256, (rows, size), np.uint8)
    near = (rng.standard_normal(rows) * 10.0 ** rng.uniform(-3, 3, rows)).astype(dtype)
    whole = (rng.integers(-300, 300, rows) / 2).astype(dtype)
    choice = rng.integers(0, 3, rows)
    values[choice == 1] = near.view(np.uint8).reshape(rows, size)[choice == 1]
    values[choice == 2] = whole.view(np.uint8).reshape(rows, size)[choice == 2]
    return values


def _counts(bits: int, rows: int, rng: np.random.Generator) -> Bytes:
    values = rng.integers(0, 2 * bits + 2, rows, np.uint32)
    values[rng.random(rows) < 0.5] %= bits
    values[rng.random(rows) < 0.05] = 0xFFFFFFFF
    return values.view(np.uint8).reshape(rows, 4)


def _chars(rows: int, rng: np.random.Generator) -> Bytes:
    values = rng.integers(0, 0x110000 - 0x800, rows, np.uint32)
    small = rng.random(rows)
    values[small < 0.7] %= 0x800
    values[small < 0.4] %= 0x80
    values[values >= 0xD800] += 0x800
    return values.view(np.uint8).reshape(rows, 4)
