"""cvt against exact fractions and Python integers: every pair of types and rounding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from rglink.emulate.arithmetic import OPERATIONS, resolve
from rglink.emulate.convert import extend
from rglink.emulate.errors import Unsupported
from tests.emulate.exact import LAYOUTS, patterns, rounded, value

INTEGERS = [f"{kind}{width}" for kind in "us" for width in (8, 16, 32, 64)]
FLOATS = ["f16", "bf16", "f32", "f64"]
ROUNDINGS = ("rn", "rz", "rm", "rp")
WHOLE: dict[str, Callable[[Fraction], int]] = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}
CANONICAL = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF}


def width(kind: str) -> int:
    return LAYOUTS[kind].width if kind in LAYOUTS else int(kind[1:])


def number(kind: str, bits: int) -> int:
    bits &= (1 << width(kind)) - 1
    return bits - (1 << width(kind)) if kind[0] == "s" and bits >> (width(kind) - 1) else bits


def limits(kind: str) -> tuple[int, int]:
    w = width(kind)
    return (-(1 << (w - 1)), (1 << (w - 1)) - 1) if kind[0] == "s" else (0, (1 << w) - 1)


def integer_patterns(kind: str, count: int = 600) -> list[int]:
    source, w = np.random.default_rng(width(kind)), width(kind)
    edges = [0, 1, 2, (1 << (w - 1)) - 1, 1 << (w - 1), (1 << w) - 1, (1 << (w - 1)) + 1]
    near = [(1 << i) + d for i in range(w) for d in (-1, 0, 1)]
    wild = [
        int(x) >> int(s)
        for x, s in zip(source.integers(0, 1 << 63, count) * 2 + 1, source.integers(0, w, count), strict=True)
    ]
    return [x & ((1 << w) - 1) for x in (*edges, *near, *wild)]


def float_patterns(kind: str, count: int = 900) -> list[int]:
    """Patterns about the sizes of integers, and halves between them."""
    layout = LAYOUTS[kind]
    result = patterns(layout, count, 31)
    for i, lane in enumerate(range(0, count, 2)):
        exact = Fraction((1 << (i % 66)) + (i % 7 - 3)) + Fraction(i % 4, 4)
        result[lane] = rounded(layout, "rn", exact * (-1 if i % 3 == 0 else 1))
    return result


def convert(opcode: str, source: list[int], wide: int, want: Callable[[int], int], target: int) -> None:
    array = np.array(source, dtype=f"u{wide // 8}")
    got = OPERATIONS["cvt"](tuple(opcode.split(".")), array)
    assert got.dtype == np.dtype(f"u{target // 8}")
    for bits, result in zip(source, got.tolist(), strict=True):
        expected = want(bits)
        assert result == expected, (opcode, hex(bits), hex(expected), hex(result))


@pytest.mark.parametrize(("target", "source"), [*itertools.product(INTEGERS, INTEGERS)])
def test_between_integers(target: str, source: str) -> None:
    bits, mask = integer_patterns(source), (1 << width(target)) - 1
    low, high = limits(target)
    convert(f"{target}.{source}", bits, width(source), lambda x: number(source, x) & mask, width(target))
    convert(
        f"sat.{target}.{source}",
        bits,
        width(source),
        lambda x: max(low, min(high, number(source, x))) & mask,
        width(target),
    )


def test_sources_and_targets_in_wider_registers() -> None:
    register = np.array([0x123456FE, 0xFFFFFF7F], dtype="u4")
    got = OPERATIONS["cvt"](("s32", "s8"), register)
    assert got.tolist() == [0xFFFFFFFE, 0x7F]
    narrow = OPERATIONS["cvt"](("s8", "s32"), register)
    assert extend(narrow, "s8", np.dtype("u4")).tolist() == [0xFFFFFFFE, 0x7F]
    assert extend(narrow, "u8", np.dtype("u2")).tolist() == [0xFE, 0x7F]
    assert extend(OPERATIONS["cvt"](("rn", "f16", "u8"), register), "f16", np.dtype("u4")).tolist() == [0x5BF0, 0x57F0]


@pytest.mark.parametrize(("target", "source"), [*itertools.product(FLOATS, INTEGERS)])
def test_integers_to_floats(target: str, source: str) -> None:
    layout, bits = LAYOUTS[target], integer_patterns(source)
    for mode in ROUNDINGS:
        convert(
            f"{mode}.{target}.{source}",
            bits,
            width(source),
            lambda x, m=mode: rounded(layout, m, Fraction(number(source, x))),  # type: ignore[misc]
            layout.width,
        )


@pytest.mark.parametrize(("target", "source"), [*itertools.product(INTEGERS, FLOATS)])
def test_floats_to_integers(target: str, source: str) -> None:
    layout, bits = LAYOUTS[source], float_patterns(source)
    low, high = limits(target)
    mask = (1 << width(target)) - 1
    of_nan = 1 << (width(target) - 1) if source == "f64" or width(target) == 64 else 0

    def want(mode: str, x: int) -> int:
        exact = value(layout, x)
        if exact is None:
            return of_nan
        if isinstance(exact, float):
            return (high if exact > 0 else low) & mask
        return max(low, min(high, WHOLE[mode](exact))) & mask

    for mode in WHOLE:
        convert(f"{mode}.{target}.{source}", bits, layout.width, lambda x, m=mode: want(m, x), width(target))  # type: ignore[misc]
    convert(f"rzi.sat.{target}.{source}", bits, layout.width, lambda x: want("rzi", x), width(target))
    if source == "f32":
        tiny = [1, 1 << 31 | 1]
        convert(f"rpi.ftz.{target}.f32", tiny, 32, lambda x: 0, width(target))
        convert(f"rpi.{target}.f32", tiny, 32, lambda x: int(x == 1), width(target))


def float_to_float(target: str, source: str, mode: str, bits: int) -> int:
    layout, origin = LAYOUTS[target], LAYOUTS[source]
    exact = value(origin, bits)
    sign = layout.sign if bits & origin.sign else 0
    if exact is None:
        payload = bits & ((1 << origin.fraction) - 1)
        if target == "f64":
            moved = payload << (52 - origin.fraction) | 1 << 51
            return sign | layout.infinity | (moved if source == "f32" else (1 << 52) - 1)
        return bits << 16 if (target, source) == ("f32", "bf16") else CANONICAL[target]
    if isinstance(exact, float):
        return layout.infinity | sign
    return rounded(layout, mode, exact, bool(sign))


def pairs() -> list[tuple[str, str, bool]]:
    """Target, source, and whether a rounding must be said."""
    narrowing = [("f32", "f64"), ("f16", "f64"), ("bf16", "f64"), ("f16", "f32"), ("bf16", "f32")]
    widening = [("f64", "f32"), ("f64", "f16"), ("f64", "bf16"), ("f32", "f16"), ("f32", "bf16")]
    return [(t, s, True) for t, s in [*narrowing, ("bf16", "f16"), ("f16", "bf16")]] + [
        (t, s, False) for t, s in widening
    ]


@pytest.mark.parametrize(("target", "source", "lossy"), pairs())
def test_between_floats(target: str, source: str, lossy: bool) -> None:
    origin, bits = LAYOUTS[source], patterns(LAYOUTS[source], 2500, 41)
    # And numbers in the middle of two of the target's, or one source place beside it.
    narrow = LAYOUTS[target]
    for lane in range(0, 2500, 2):
        exponent = [0, 1 - narrow.bias, -narrow.bias - 2, narrow.bias, 3][lane % 5]
        middle = Fraction(2 * (lane % (1 << narrow.fraction)) + 1 + (2 << narrow.fraction), 2 << narrow.fraction)
        near = rounded(origin, "rz", middle * Fraction(2) ** exponent)
        bits[lane] = near + (lane // 10) % 3 - 1 if near else near
    for mode in ROUNDINGS if lossy else ("",):
        opcode = ".".join(part for part in (mode, target, source) if part)

        def want(x: int, mode: str = mode) -> int:
            if value(origin, x) is None and (target, source) in (("f64", "f16"), ("f64", "bf16")):
                return got_nan(target, source, x)
            return float_to_float(target, source, mode or "rn", x)

        convert(opcode, bits, origin.width, want, narrow.width)


def got_nan(target: str, source: str, bits: int) -> int:
    """Some NaN is all that PTX asks for from a half; this one is what the code gives, if it is a NaN at all."""
    result = int(OPERATIONS["cvt"]((target, source), np.array([bits], dtype="u2"))[0])
    assert value(LAYOUTS[target], result) is None
    return result


@pytest.mark.parametrize("kind", FLOATS)
def test_rounding_to_whole_numbers(kind: str) -> None:
    layout, bits = LAYOUTS[kind], float_patterns(kind)
    for mode, whole in WHOLE.items():

        def want(x: int, whole: Callable[[Fraction], int] = whole) -> int:
            exact = value(layout, x)
            if exact is None:
                return CANONICAL[kind] if kind != "f64" else x | 1 << 51
            if isinstance(exact, float):
                return x
            return rounded(layout, "rn", Fraction(whole(exact)), bool(x & layout.sign))

        convert(f"{mode}.{kind}.{kind}", bits, layout.width, want, layout.width)


def test_saturating_modifiers() -> None:
    bits = patterns(LAYOUTS["f32"], 1500, 43)
    bits += [0x7F7FFFFF, 0xFF7FFFFF, 0x477FF000, 0xC77FF000]
    f32 = LAYOUTS["f32"]
    for target in ("f16", "bf16"):

        def finite(x: int, target: str = target) -> int:
            sign = LAYOUTS[target].sign if x & f32.sign else 0
            if value(f32, x) is None:
                return CANONICAL[target]
            return (
                min(float_to_float(target, "f32", "rn", x) & ~LAYOUTS[target].sign, LAYOUTS[target].infinity - 1) | sign
            )

        def positive(x: int, target: str = target) -> int:
            return 0 if x & f32.sign and value(f32, x) is not None else float_to_float(target, "f32", "rn", x)

        convert(f"rn.satfinite.{target}.f32", bits, 32, finite, 16)
        convert(f"rn.relu.{target}.f32", bits, 32, positive, 16)
        high, low = np.array(bits, dtype="u4"), np.array(bits[::-1], dtype="u4")
        got = OPERATIONS["cvt"](("rn", f"{target}x2", "f32"), high, low)
        one = OPERATIONS["cvt"](("rn", target, "f32"), high).astype("u4")
        assert np.array_equal(got, one << 16 | one[::-1])

    def clamped(x: int) -> int:
        exact = value(f32, x)
        return 0 if exact is None or exact <= 0 else min(x, f32.bias << 23)

    convert("sat.f32.f32", bits, 32, clamped, 32)
    convert("ftz.f32.f32", [1, 1 << 31 | 1, 0x00800000], 32, lambda x: x if x == 0x00800000 else x & 1 << 31, 32)
    # A double that rounds to a subnormal: flushed after the rounding.
    double = int(np.array([1e-40]).view("u8")[0])
    convert("rn.ftz.f32.f64", [double, double | 1 << 63], 64, lambda x: x >> 63 << 31, 32)


@pytest.mark.parametrize("mode", ["rna", "rn", "rz"])
def test_tf32(mode: str) -> None:
    bits = patterns(LAYOUTS["f32"], 2000, 47)
    bits += [0x3F801000, 0x3F803000, 0x7F7FF000, 0x7F7FEFFF, 0x3F800FFF]
    f32 = LAYOUTS["f32"]

    def want(x: int) -> int:
        if value(f32, x) is None:
            return 0x7FFFFFFF
        # Places of tf32 are steps of 2**13 in the pattern, which is monotonic in the number.
        kept, rest = divmod(x & 0x7FFFFFFF, 1 << 13)
        kept += {"rna": rest >= 1 << 12, "rn": rest > 1 << 12 or (rest == 1 << 12 and kept % 2 == 1), "rz": False}[mode]
        return x & 1 << 31 | kept << 13

    convert(f"{mode}.tf32.f32", bits, 32, want, 32)

    def finite(x: int) -> int:
        result = want(x)
        return result if value(f32, x) is None else result & 1 << 31 | min(result & 0x7FFFFFFF, 0x7F7FE000)

    convert(f"{mode}.satfinite.tf32.f32", bits, 32, finite, 32)


# Exponent bits, fraction bits, bias, greatest pattern, pattern of NaN or None.
NARROW: dict[str, tuple[int, int, int, int, int | None]] = {
    "e4m3": (4, 3, 7, 0x7E, 0x7F),
    "e5m2": (5, 2, 15, 0x7B, 0x7F),
    "e2m3": (2, 3, 1, 0x1F, None),
    "e3m2": (3, 2, 3, 0x1F, None),
    "e2m1": (2, 1, 1, 0x07, None),
}


def narrow_values(name: str) -> list[Fraction]:
    """The numbers of the patterns from zero to the greatest."""
    _exponent, fraction, bias, largest, _nan = NARROW[name]
    result = []
    for code in range(largest + 1):
        field, low = code >> fraction, code & ((1 << fraction) - 1)
        significand = low + (1 << fraction) * (field > 0)
        result.append(significand * Fraction(2) ** (max(field, 1) - bias - fraction))
    return result


@pytest.mark.parametrize("name", sorted(NARROW))
def test_narrow_formats(name: str) -> None:
    exponent, fraction, _bias, largest, nan = NARROW[name]
    values, sign = narrow_values(name), 1 << (exponent + fraction)
    f32 = LAYOUTS["f32"]
    middles = [(x + y) / 2 for x, y in itertools.pairwise(values)]
    bits = patterns(f32, 800, 53)
    bits += [rounded(f32, "rn", x) + d for x in (*values, *middles) if x for d in (-1, 0, 1)]
    bits += [x | f32.sign for x in bits]

    def want(x: int) -> int:
        exact = value(f32, x)
        if exact is None:
            return largest if nan is None else nan
        minus = sign if x & f32.sign else 0
        size = Fraction(abs(exact)) if isinstance(exact, Fraction) else values[-1]
        if size >= values[-1]:
            return largest | minus
        # Nearest; of two as near, the even pattern.
        return min(range(largest + 1), key=lambda c: (abs(values[c] - size), c % 2)) | minus

    expected = {x: want(x) for x in set(bits)}
    high, low = np.array(bits, dtype="u4"), np.array(bits[::-1], dtype="u4")
    got = OPERATIONS["cvt"](("rn", "satfinite", f"{name}x2", "f32"), high, low)
    shift = 4 if name == "e2m1" else 8
    assert got.dtype == np.dtype("u1" if name == "e2m1" else "u2")
    for a, b, result in zip(bits, bits[::-1], got.tolist(), strict=True):
        assert result == expected[a] << shift | expected[b], (name, hex(a), hex(b), hex(result))


@pytest.mark.parametrize("name", sorted(NARROW))
def test_narrow_formats_come_back(name: str) -> None:
    _exponent, _fraction, _bias, largest, _nan = NARROW[name]
    values, f16 = narrow_values(name), LAYOUTS["f16"]
    codes = np.arange(largest + 1, dtype="u2")
    shift = 4 if name == "e2m1" else 8
    register = (codes << shift | codes[::-1]).astype("u1" if name == "e2m1" else "u2")
    got = OPERATIONS["cvt"](("rn", "f16x2", f"{name}x2"), register)
    for code, result in enumerate(got.tolist()):
        assert value(f16, result >> 16) == values[code]
        assert value(f16, result & 0xFFFF) == values[largest - code]
    back = OPERATIONS["cvt"](("rn", "satfinite", f"{name}x2", "f16x2"), got)
    assert np.array_equal(back, register)
    assert (
        value(
            f16, int(OPERATIONS["cvt"](("rn", "relu", "f16x2", f"{name}x2"), register | np.uint16(0x8080))[1]) & 0xFFFF
        )
        is not None
    )


def test_pack() -> None:
    source = np.random.default_rng(3)
    a, b, c = (source.integers(0, 1 << 32, 500, dtype="u4") >> np.uint32(s) for s in (20, 0, 0))
    b[::2] >>= np.uint32(27)
    for kind in ("u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"):
        w = int(kind[1:])
        low, high = (-(1 << (w - 1)), (1 << (w - 1)) - 1) if kind[0] == "s" else (0, (1 << w) - 1)
        operands: tuple[Any, ...] = (a, b) if w == 16 else (a, b, c)
        got = OPERATIONS["cvt"](("pack", "sat", kind, "s32") + (() if w == 16 else ("b32",)), *operands)
        for lane in range(500):
            x, y = (max(low, min(high, number("s32", int(v[lane])))) & ((1 << w) - 1) for v in (a, b))
            want = x << w | y | (0 if w == 16 else int(c[lane]) << (2 * w))
            assert int(got[lane]) == want & 0xFFFFFFFF


@pytest.mark.parametrize(
    "opcode",
    [
        "rs.f16x2.f32",
        "rn.ue8m0x2.f32",
        "f32.s32",
        "s32.f32",
        "rni.f32.f64",
        "rn.f32.f32",
        "rn.u32.u64",
        "pack.sat.u8.s32",
        "b32.u32",
    ],
)
def test_what_is_not_supported_is_named(opcode: str) -> None:
    with pytest.raises(Unsupported, match=r"^cvt\."):
        resolve("cvt", tuple(opcode.split(".")))
