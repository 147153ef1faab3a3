"""Comparisons and selections against Python's, with NaNs by the manual's tables."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from rglink.emulate.arithmetic import OPERATIONS
from rglink.emulate.compare import compare
from rglink.emulate.errors import Unsupported
from tests.emulate.exact import LAYOUTS, patterns, value

ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}


@pytest.mark.parametrize(("kind", "width"), [(k, w) for k in "usb" for w in (16, 32, 64)])
def test_integers(kind: str, width: int) -> None:
    edges = [0, 1, 2, (1 << (width - 1)) - 1, 1 << (width - 1), (1 << (width - 1)) + 1, (1 << width) - 1]
    pairs = list(itertools.product(edges, edges))
    a, b = (np.array(column, dtype=f"u{width // 8}") for column in zip(*pairs, strict=True))

    def number(x: int) -> int:
        return x - (1 << width) if kind == "s" and x >> (width - 1) else x

    for operator, holds in ORDER.items():
        if kind == "b" and operator not in ("eq", "ne"):
            with pytest.raises(Unsupported):
                compare(operator, f"b{width}", a, b)
            continue
        want = [holds(number(x), number(y)) for x, y in pairs]
        assert compare(operator, f"{kind}{width}", a, b).tolist() == want
    if kind == "u":
        for operator, same in (("lo", "lt"), ("ls", "le"), ("hi", "gt"), ("hs", "ge")):
            assert np.array_equal(compare(operator, f"u{width}", a, b), compare(same, f"u{width}", a, b))


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_floats(kind: str) -> None:
    layout = LAYOUTS[kind]
    columns = [patterns(layout, 800, seed) for seed in (1, 2)]
    columns[1][:100] = columns[0][:100]
    a, b = (np.array(column, dtype=f"u{layout.width // 8}") for column in columns)
    numbers: list[tuple[Fraction | float | None, Fraction | float | None]] = [
        (value(layout, x), value(layout, y)) for x, y in zip(*columns, strict=True)
    ]
    for operator, holds in ORDER.items():
        ordered = [x is not None and y is not None and holds(x, y) for x, y in numbers]
        assert compare(operator, kind, a, b).tolist() == ordered, operator
        unordered = [x is None or y is None or holds(x, y) for x, y in numbers]
        assert compare(f"{operator}u", kind, a, b).tolist() == unordered, operator
    both = [x is not None and y is not None for x, y in numbers]
    assert compare("num", kind, a, b).tolist() == both
    assert compare("nan", kind, a, b).tolist() == [not x for x in both]


def test_setp_with_a_predicate_and_both_results() -> None:
    a, b = np.array([1, 2, 3, 4], dtype="u4"), np.array([2, 2, 2, 2], dtype="u4")
    c = np.array([True, False, True, False])
    less = np.array([True, False, False, False])
    assert OPERATIONS["setp"](("lt", "u32"), a, b).tolist() == less.tolist()
    assert OPERATIONS["setp"](("lt", "and", "u32"), a, b, c).tolist() == (less & c).tolist()
    assert OPERATIONS["setp"](("lt", "xor", "s32"), a, b, c).tolist() == (less ^ c).tolist()
    p, q = OPERATIONS["setp_pair"](("lt", "or", "u32"), a, b, c)
    assert (p.tolist(), q.tolist()) == ((less | c).tolist(), (~less | c).tolist())
    p, q = OPERATIONS["setp_pair"](("lt", "u32"), a, b)
    assert (p.tolist(), q.tolist()) == (less.tolist(), (~less).tolist())
    low, high = OPERATIONS["setp"](
        ("gt", "f16x2"), np.array([0x3C004000], dtype="u4"), np.array([0x3C003C00], dtype="u4")
    )
    assert (low.tolist(), high.tolist()) == ([True], [False])


def test_flushed_operands() -> None:
    tiny, zero = np.array([1], dtype="u4"), np.array([1 << 31], dtype="u4")
    assert OPERATIONS["setp"](("gt", "f32"), tiny, zero).tolist() == [True]
    assert OPERATIONS["setp"](("gt", "ftz", "f32"), tiny, zero).tolist() == [False]


def test_set_writes_ones() -> None:
    a, b = np.array([1, 5], dtype="u4"), np.array([3, 3], dtype="u4")
    assert OPERATIONS["set"](("lt", "u32", "u32"), a, b).tolist() == [0xFFFFFFFF, 0]
    assert OPERATIONS["set"](("lt", "f32", "s32"), a, b).tolist() == [0x3F800000, 0]
    assert OPERATIONS["set"](("ge", "and", "s32", "u32"), a, b, np.array([True, False])).tolist() == [0, 0]
    pair = np.array([0x3C004000], dtype="u4")
    assert OPERATIONS["set"](("eq", "f16x2", "f16x2"), pair, np.array([0x3C003C00], dtype="u4")).tolist() == [
        0x3C000000
    ]


def test_selection() -> None:
    a, b = np.array([1, 2, 3], dtype="u8"), np.array([7, 8, 9], dtype="u8")
    assert OPERATIONS["selp"](("b64",), a, b, np.array([True, False, True])).tolist() == [1, 8, 3]
    c = np.array([0, 0xFFFFFFFF, 5], dtype="u4")
    assert OPERATIONS["slct"](("u64", "s32"), a, b, c).tolist() == [1, 8, 3]
    floats = np.array([0x80000000, 0x80000001, 0x7FC00000], dtype="u4")
    assert OPERATIONS["slct"](("u64", "f32"), a, b, floats).tolist() == [1, 8, 9]
    assert OPERATIONS["slct"](("ftz", "u64", "f32"), a, b, floats).tolist() == [1, 2, 9]


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
@pytest.mark.parametrize("operator", ["lt", "eq", "geu", "ne", "nan"])
def test_set_of_packed_halves(kind: str, operator: str) -> None:
    """Each half by itself, against the scalar comparison: 1.0 of the type, or a mask of 16 bits in an integer."""
    scalar = kind[:-2]
    low, high = (
        [np.array(patterns(LAYOUTS[scalar], 300, seed + 2 * half), "u2") for half in (0, 1)] for seed in (1, 2)
    )
    a, b = (np.stack(halves, axis=1).reshape(-1).view("u4") for halves in (low, high))
    holds = [compare(operator, scalar, x, y) for x, y in zip(low, high, strict=True)]
    one = {"f16": 0x3C00, "bf16": 0x3F80}[scalar]
    for result, true in ((kind, one), ("u32", 0xFFFF), ("s32", 0xFFFF)):
        want = [int(x) * true | int(y) * true << 16 for x, y in zip(*holds, strict=True)]
        assert OPERATIONS["set"]((operator, result, kind), a, b).tolist() == want
    predicate = np.arange(len(a)) % 3 == 0
    want = [(int(x and p) * 0xFFFF) | (int(y and p) * 0xFFFF) << 16 for x, y, p in zip(*holds, predicate, strict=True)]
    assert OPERATIONS["set"]((operator, "and", "u32", kind), a, b, predicate).tolist() == want
    for result in ("u16", "f32", "f16"):
        with pytest.raises(Unsupported):
            OPERATIONS["set"]((operator, result, kind), a, b)
