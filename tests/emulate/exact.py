"""An exact second opinion on floating point: Python integers and fractions, nothing of the code under test."""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction

INFINITY = float("inf")


@dataclass(frozen=True)
class Layout:
    width: int
    fraction: int

    @property
    def exponent_bits(self) -> int:
        return self.width - 1 - self.fraction

    @property
    def bias(self) -> int:
        return int((1 << (self.exponent_bits - 1)) - 1)

    @property
    def infinity(self) -> int:
        return int(((1 << self.exponent_bits) - 1) << self.fraction)

    @property
    def sign(self) -> int:
        return int(1 << (self.width - 1))


LAYOUTS = {"f16": Layout(16, 10), "bf16": Layout(16, 7), "f32": Layout(32, 23), "f64": Layout(64, 52)}


def value(layout: Layout, bits: int) -> Fraction | float | None:
    """The number; infinity as a float, None for NaN."""
    sign = -1 if bits & layout.sign else 1
    magnitude = bits & (layout.sign - 1)
    if magnitude == layout.infinity:
        return sign * INFINITY
    if magnitude > layout.infinity:
        return None
    field, fraction = magnitude >> layout.fraction, magnitude & ((1 << layout.fraction) - 1)
    significand = fraction + (1 << layout.fraction) * (field > 0)
    return sign * significand * Fraction(2) ** (max(field, 1) - layout.bias - layout.fraction)


def rounded(layout: Layout, mode: str, exact: Fraction, negative_zero: bool = False) -> int:
    """The pattern nearest to an exact number in a rounding mode (rn, rz, rm, rp, rna)."""
    if exact == 0:
        return layout.sign if negative_zero else 0
    negative, size = exact < 0, abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    exponent = max(exponent, 1 - layout.bias)
    scaled = size / Fraction(2) ** (exponent - layout.fraction)
    kept = scaled.numerator // scaled.denominator
    rest, half = scaled - kept, Fraction(1, 2)
    kept += {
        "rn": rest > half or (rest == half and kept % 2 == 1),
        "rna": rest >= half,
        "rz": False,
        "rm": negative and rest > 0,
        "rp": not negative and rest > 0,
    }[mode]
    bits = kept + ((exponent + layout.bias - 1) << layout.fraction)
    if bits >= layout.infinity:
        outward = {"rn": True, "rna": True, "rz": False, "rm": negative, "rp": not negative}[mode]
        bits = layout.infinity if outward else layout.infinity - 1
    return bits | (layout.sign if negative else 0)


def zero_is_negative(mode: str, first_negative: bool, second_negative: bool) -> bool:
    """The sign of a sum that is zero: of two addends of these signs."""
    return first_negative if first_negative == second_negative else mode == "rm"


def patterns(layout: Layout, count: int, seed: int) -> list[int]:
    """Random patterns: near one, of any exponent, and every kind of edge."""
    source = random.Random(seed)
    top = (1 << layout.fraction) - 1
    edges = [
        0,
        1,
        top,
        top + 1,
        layout.bias << layout.fraction,
        layout.infinity - 1,
        layout.infinity,
        layout.infinity + 1,
    ]
    edges += [layout.infinity | (1 << (layout.fraction - 1)) | 5 % (top + 1), (layout.bias << layout.fraction) - 1]
    edges += [x | layout.sign for x in edges]
    result = list(edges)
    while len(result) < count:
        kind = source.random()
        if kind < 0.2:
            result.append(source.getrandbits(layout.width))
        elif kind < 0.3:
            result.append(source.choice(edges))
        else:
            reach = 4 if kind < 0.6 else 40
            field = (layout.bias + source.randint(-reach, reach)) % (1 << layout.exponent_bits)
            fraction = source.choice([0, 1, top, 1 << (layout.fraction - 1), source.getrandbits(layout.fraction)])
            result.append(source.getrandbits(1) * layout.sign | field << layout.fraction | fraction)
    source.shuffle(result)
    return result
