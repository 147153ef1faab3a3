"""Floating-point instructions against exact fractions: every rounding, format and kind of operand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from rglink.emulate.arithmetic import OPERATIONS, resolve
from rglink.emulate.errors import Unsupported
from tests.emulate.exact import LAYOUTS, Layout, patterns, rounded, value, zero_is_negative

ROUNDINGS = ("rn", "rz", "rm", "rp")
CANONICAL = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF}
COUNT = 1500


def operands(kind: str, how_many: int, seed: int = 0) -> list[list[int]]:
    """Columns of patterns, every third lane such that the addend nearly cancels what comes before."""
    layout = LAYOUTS[kind]
    columns = [patterns(layout, COUNT, 100 * seed + i) for i in range(how_many)]
    for lane in range(0, COUNT, 3):
        numbers = [value(layout, column[lane]) for column in columns[:-1]]
        product = Fraction(1)
        for number in numbers:
            product = product * number if isinstance(number, Fraction) else Fraction(0)
        if product and how_many > 1:
            near = rounded(layout, "rz", -product) + (lane // 3) % 3 - 1
            columns[-1][lane] = near % (1 << layout.width)
    return columns


def as_arrays(kind: str, columns: list[list[int]]) -> list[Any]:
    return [np.array(column, dtype=f"u{LAYOUTS[kind].width // 8}") for column in columns]


def nan_of(kind: str, *bits: int) -> int:
    """The NaN of the result: canonical, for f64 the first NaN operand made quiet."""
    if kind != "f64":
        return CANONICAL[kind]
    first = next((b for b in bits if value(LAYOUTS["f64"], b) is None), 0xFFF8 << 48)
    return first | 1 << 51


def negative(layout: Layout, bits: int) -> bool:
    return bool(bits & layout.sign)


def expect(kind: str, mode: str, exact: Fraction | float | None, zero: bool, *bits: int) -> int:
    layout = LAYOUTS[kind]
    if exact is None:
        return nan_of(kind, *bits)
    if isinstance(exact, float):
        return layout.infinity | (layout.sign if exact < 0 else 0)
    return rounded(layout, mode, exact, zero)


def product(x: Fraction | float | None, y: Fraction | float | None, minus: bool) -> Fraction | float | None:
    if x is None or y is None:
        return None
    if isinstance(x, float) or isinstance(y, float):
        return None if 0 in (x, y) else math.copysign(math.inf, -1 if minus else 1)
    return x * y


def total(x: Fraction | float | None, y: Fraction | float | None) -> Fraction | float | None:
    if x is None or y is None:
        return None
    if isinstance(x, float) or isinstance(y, float):
        both = isinstance(x, float) and isinstance(y, float)
        return None if both and x != y else x if isinstance(x, float) else y
    return x + y


def reference(name: str, kind: str, mode: str, bits: tuple[int, ...]) -> int:
    """The pattern that IEEE 754 gives for add, sub, mul, fma, div and rcp."""
    layout = LAYOUTS[kind]
    x = [value(layout, b) for b in bits]
    s = [negative(layout, b) for b in bits]
    if name == "rcp":
        return reference("div", kind, mode, (layout.bias << layout.fraction, bits[0]))
    if name == "sub":
        flipped = bits[1] if x[1] is None else bits[1] ^ layout.sign
        return reference("add", kind, mode, (bits[0], flipped))
    if name == "add":
        return expect(kind, mode, total(x[0], x[1]), zero_is_negative(mode, s[0], s[1]), *bits)
    minus = s[0] != s[1]
    if name == "mul":
        return expect(kind, mode, product(x[0], x[1], minus), minus, *bits)
    if name == "fma":
        exact = total(product(x[0], x[1], minus), x[2])
        return expect(kind, mode, exact, zero_is_negative(mode, minus, s[2]), *bits)
    a, b = x
    quotient: Fraction | float | None
    if a is None or b is None or (isinstance(a, float) and isinstance(b, float)) or (a == 0 and b == 0):
        quotient = None
    elif isinstance(a, float) or b == 0:
        quotient = -math.inf if minus else math.inf
    else:
        quotient = Fraction(0) if isinstance(b, float) else Fraction(a) / b
    return expect(kind, mode, quotient, minus, *bits)


def root(kind: str, mode: str, bits: int) -> int:
    layout = LAYOUTS[kind]
    x = value(layout, bits)
    if x is None or x < 0:
        return nan_of(kind, bits)
    if isinstance(x, float) or x == 0:
        return bits
    # Floor of the root with many bits to spare, and a little more where it is not exact.
    scale = 1 << 700
    square = x * scale * scale
    floor = math.isqrt(square.numerator // square.denominator)
    exact = Fraction(floor * floor) == square
    return rounded(layout, mode, Fraction(2 * floor + (not exact), 2 * scale))


def compare(opcode: str, arrays: list[Any], want: Callable[..., int]) -> None:
    name, *modifiers = opcode.split(".")
    got = OPERATIONS[name](tuple(modifiers), *arrays)
    assert got.dtype == arrays[0].dtype
    for lane, bits in enumerate(zip(*(array.tolist() for array in arrays), strict=True)):
        expected = want(*bits)
        assert int(got[lane]) == expected, (opcode, [hex(b) for b in bits], hex(expected), hex(int(got[lane])))


@pytest.mark.parametrize(
    ("kind", "mode"), [*itertools.product(("f32", "f64"), ROUNDINGS), ("f16", "rn"), ("bf16", "rn")]
)
def test_arithmetic_is_rounded_once(kind: str, mode: str) -> None:
    two, three = as_arrays(kind, operands(kind, 2)), as_arrays(kind, operands(kind, 3, seed=1))
    for name in ("add", "sub", "mul"):
        compare(f"{name}.{mode}.{kind}", two, lambda *bits, n=name: reference(n, kind, mode, bits))
    compare(f"fma.{mode}.{kind}", three, lambda *bits: reference("fma", kind, mode, bits))
    if kind in ("f32", "f64"):
        compare(f"mad.{mode}.{kind}", three, lambda *bits: reference("fma", kind, mode, bits))
        compare(f"div.{mode}.{kind}", two, lambda *bits: reference("div", kind, mode, bits))
        compare(f"rcp.{mode}.{kind}", two[:1], lambda *bits: reference("rcp", kind, mode, bits))
        compare(f"sqrt.{mode}.{kind}", two[:1], lambda a: root(kind, mode, a))


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_multiply_add_at_ties(kind: str) -> None:
    """Products that lie on or beside the middle of two numbers, with addends too small to be seen but to decide."""
    layout = LAYOUTS[kind]
    columns = [patterns(layout, COUNT, 7 + i) for i in range(3)]
    for lane in range(COUNT):
        # An odd significand by 1 + half a place: the product's lost bits start with a one.
        field = layout.bias + (lane % 9) - 4
        columns[0][lane] = field << layout.fraction | (2 * lane + 1) % (1 << layout.fraction)
        half_place = 1 << (layout.fraction - 1 - lane % 3)
        columns[1][lane] = layout.bias << layout.fraction | half_place
        tiny = (layout.bias - min(60 + lane % 40, layout.bias - 1)) << layout.fraction
        columns[2][lane] = [tiny, tiny | layout.sign, 0, 1, 1 | layout.sign][lane % 5]
    arrays = as_arrays(kind, columns)
    compare(f"fma.rn.{kind}", arrays, lambda *bits: reference("fma", kind, "rn", bits))


def test_subnormal_results_of_bf16_products() -> None:
    """Products about the smallest numbers, where the rounding of f32 could come before that of bf16."""
    source = np.random.default_rng(5)
    a = (source.integers(0, 70, 4000) << 7 | source.integers(0, 128, 4000)).astype("u2")
    b = (source.integers(0, 70, 4000) << 7 | source.integers(0, 128, 4000)).astype("u2")
    c = source.integers(0, 4, 4000).astype("u2")
    compare("mul.rn.bf16", [a, b], lambda *bits: reference("mul", "bf16", "rn", bits))
    compare("fma.rn.bf16", [a, b, c], lambda *bits: reference("fma", "bf16", "rn", bits))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_patterns_all_over_by_chosen_factors(kind: str) -> None:
    every = np.arange(0, 1 << 16, 5, dtype="u2")
    layout = LAYOUTS[kind]
    for partner in (layout.bias << layout.fraction | 1, layout.infinity - 1):
        other = np.full_like(every, partner)
        compare(f"mul.{kind}", [every, other], lambda *bits: reference("mul", kind, "rn", bits))


def flushed(kind: str, bits: int) -> int:
    layout = LAYOUTS[kind]
    return bits & layout.sign if bits & (layout.sign - 1) < 1 << layout.fraction else bits


@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_flush_to_zero(kind: str) -> None:
    layout = LAYOUTS[kind]
    columns = operands(kind, 3, seed=3)
    for lane in range(0, COUNT, 2):
        # Small operands, so that results are subnormal too.
        for column, most in zip(columns, (layout.bias, layout.bias, 3), strict=True):
            column[lane] = column[lane] & layout.sign | (column[lane] % (most << layout.fraction))
    arrays = as_arrays(kind, columns)
    for mode in ROUNDINGS if kind == "f32" else ("rn",):
        for name in ("add", "mul", "fma"):
            count = 3 if name == "fma" else 2

            def want(*bits: int, name: str = name, mode: str = mode) -> int:
                return flushed(kind, reference(name, kind, mode, tuple(flushed(kind, b) for b in bits)))

            compare(f"{name}.{mode}.ftz.{kind}", arrays[:count], want)


@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_saturation(kind: str) -> None:
    layout = LAYOUTS[kind]
    arrays = as_arrays(kind, operands(kind, 3, seed=4))
    one = layout.bias << layout.fraction

    def clamped(bits: int) -> int:
        number = value(layout, bits)
        return 0 if number is None or number <= 0 else min(bits, one)

    for name, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
        opcode = f"{name}.rn.sat.{kind}"
        compare(opcode, arrays[:count], lambda *bits, n=name: clamped(reference(n, kind, "rn", bits)))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_relu(kind: str) -> None:
    layout = LAYOUTS[kind]

    def want(*bits: int) -> int:
        result = reference("fma", kind, "rn", bits)
        return result if value(layout, result) is None or not negative(layout, result) else 0

    compare(f"fma.rn.relu.{kind}", as_arrays(kind, operands(kind, 3, seed=5)), want)


@pytest.mark.parametrize(("packed", "kind"), [("f16x2", "f16"), ("bf16x2", "bf16"), ("f32x2", "f32")])
def test_packed_pairs(packed: str, kind: str) -> None:
    width = LAYOUTS[kind].width
    low, high = as_arrays(kind, operands(kind, 3, seed=6)), as_arrays(kind, operands(kind, 3, seed=7))
    wide = np.dtype(f"u{width // 4}")
    both = [(h.astype(wide) << wide.type(width)) | lo for lo, h in zip(low, high, strict=True)]
    for name, count in (("add", 2), ("mul", 2), ("fma", 3)):
        got = OPERATIONS[name](("rn", packed), *both[:count])
        for part, arrays in ((got & wide.type((1 << width) - 1), low), (got >> wide.type(width), high)):
            assert np.array_equal(part, OPERATIONS[name](("rn", kind), *arrays[:count]))


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_extrema(kind: str) -> None:
    layout = LAYOUTS[kind]
    arrays = as_arrays(kind, operands(kind, 3, seed=8))

    def pick(smaller: bool, strict: bool, a: int, b: int) -> int:
        x, y = value(layout, a), value(layout, b)
        if (x is None and y is None) or (strict and (x is None or y is None)):
            return nan_of(kind, a, b)
        if x is None or y is None:
            return a if y is None else b
        key = lambda bits: (value(layout, bits), not negative(layout, bits))  # noqa: E731
        return min(a, b, key=key) if smaller else max(a, b, key=key)

    clear = layout.sign - 1
    for name in ("min", "max"):
        smaller = name == "min"
        compare(f"{name}.{kind}", arrays[:2], lambda a, b, s=smaller: pick(s, False, a, b))
        if kind == "f64":
            continue
        compare(f"{name}.NaN.{kind}", arrays[:2], lambda a, b, s=smaller: pick(s, True, a, b))

        def xorsign(a: int, b: int, s: bool = smaller) -> int:
            result = pick(s, False, a & clear, b & clear)
            return result if value(layout, result) is None else result | (a ^ b) & layout.sign

        compare(f"{name}.xorsign.abs.{kind}", arrays[:2], xorsign)
    if kind == "f32":
        compare("max.NaN.f32", arrays, lambda a, b, c: pick(False, True, pick(False, True, a, b), c))
        compare(
            "min.abs.f32", arrays, lambda a, b, c: pick(True, False, pick(True, False, a & clear, b & clear), c & clear)
        )


def test_a_fused_factor_that_all_lanes_share() -> None:
    """One element stands for all lanes, in any operand."""
    shared, lanes = np.array([1.5]).view(np.uint64), np.array([1.0, 1e300, -2.0]).view(np.uint64)
    fused = OPERATIONS["fma"](("rn", "f64"), shared, shared, lanes)
    assert fused.view(np.float64).tolist() == [3.25, 1e300, 0.25]


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_signs(kind: str) -> None:
    layout = LAYOUTS[kind]
    arrays = as_arrays(kind, operands(kind, 2, seed=9))

    def number_or_nan(operand: int, result: int) -> int:
        return result if value(layout, operand) is not None else nan_of(kind, operand)

    compare(f"abs.{kind}", arrays[:1], lambda a: number_or_nan(a, a & (layout.sign - 1)))
    compare(f"neg.{kind}", arrays[:1], lambda a: number_or_nan(a, a ^ layout.sign))
    if kind in ("f32", "f64"):
        compare(f"copysign.{kind}", arrays, lambda a, b: a & layout.sign | b & (layout.sign - 1))


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_properties(kind: str) -> None:
    layout = LAYOUTS[kind]
    (array,) = as_arrays(kind, operands(kind, 1, seed=10))
    smallest = Fraction(2) ** (1 - layout.bias)
    numbers = [value(layout, int(bits)) for bits in array]
    tests: dict[str, Callable[[Any], bool]] = {
        "finite": lambda x: isinstance(x, Fraction),
        "infinite": lambda x: isinstance(x, float),
        "number": lambda x: x is not None,
        "notanumber": lambda x: x is None,
        "normal": lambda x: isinstance(x, Fraction) and (x == 0 or abs(x) >= smallest),
        "subnormal": lambda x: isinstance(x, Fraction) and 0 < abs(x) < smallest,
    }
    for test, holds in tests.items():
        assert OPERATIONS["testp"]((test, kind), array).tolist() == [holds(x) for x in numbers], test


@pytest.mark.parametrize("narrow", ["f16", "bf16"])
def test_mixed_precision(narrow: str) -> None:
    a, b = as_arrays(narrow, operands(narrow, 2, seed=11))
    (c,) = as_arrays("f32", operands("f32", 1, seed=12))
    layout = LAYOUTS[narrow]

    def widened(bits: int) -> int:
        number = value(layout, bits)
        return expect("f32", "rn", number, negative(layout, bits))

    for mode in ROUNDINGS:
        got = OPERATIONS["add"]((mode, "f32", narrow), a, c)
        fused = OPERATIONS["fma"]((mode, "f32", narrow), a, b, c)
        for lane in range(COUNT):
            x, y, z = int(a[lane]), int(b[lane]), int(c[lane])
            assert int(got[lane]) == reference("add", "f32", mode, (widened(x), z))
            assert int(fused[lane]) == reference("fma", "f32", mode, (widened(x), widened(y), z))


@pytest.mark.parametrize(
    ("opcode", "named"),
    [
        ("add.rz.f16", "rz|no such"),
        ("add.ftz.f64", "ftz|no such"),
        ("add.sat.bf16", "sat|no such"),
        ("fma.f32", "lacks"),
        ("fma.rn.oob.f16", "oob"),
        ("min.xorsign.f32", "xorsign"),
        ("sin.approx.f64", "no such"),
        ("div.f32", "lacks"),
        ("rem.f32", "rem"),
    ],
)
def test_what_is_not_ptx_is_named(opcode: str, named: str) -> None:
    name, *modifiers = opcode.split(".")
    with pytest.raises(Unsupported, match=named):
        resolve(name, tuple(modifiers))


def test_scalars_and_empty_waves() -> None:
    one, two = np.uint32(0x3F800000), np.uint32(0x40000000)
    none = np.zeros(0, dtype="u4")
    for opcode in ("add.f32", "mul.rz.f32", "div.rn.f32", "min.f32"):
        name, *modifiers = opcode.split(".")
        together = OPERATIONS[name](tuple(modifiers), np.array([0x3F800000], dtype="u4"), two)
        assert int(OPERATIONS[name](tuple(modifiers), one, two)) == int(together[0])
        assert OPERATIONS[name](tuple(modifiers), none, none).size == 0
    assert OPERATIONS["fma"](("rn", "f32"), none, none, none).size == 0
    assert int(OPERATIONS["fma"](("rn", "f32"), one, one, one)) == int(two)
