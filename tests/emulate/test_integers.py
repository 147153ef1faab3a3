"""Integer and bit instructions against Python integers, on edges and random patterns."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rglink.emulate.arithmetic import OPERATIONS, resolve
from rglink.emulate.errors import Unsupported

SEED = 20261201


def signed(x: int, width: int) -> int:
    x &= (1 << width) - 1
    return x - (1 << width) if x >> (width - 1) else x


def patterns(width: int, count: int, seed: int) -> list[int]:
    source = random.Random(seed * 1000 + width)
    edges = [0, 1, 2, 3, 31, 32, 33, 63, 64, 65, 255, 256, (1 << (width - 1)) - 1, 1 << (width - 1), (1 << width) - 1]
    edges = [e & ((1 << width) - 1) for e in edges]
    result = (
        [a for a, _ in itertools.product(edges, edges)] if seed % 2 else [b for _, b in itertools.product(edges, edges)]
    )
    while len(result) < count:
        result.append(source.getrandbits(width) >> source.choice([0, 0, width // 2, width - 4]))
    return result


def check(opcode: str, widths: tuple[int, ...], result_width: int, reference: Callable[..., int]) -> None:
    """The opcode on vectors of operands of these widths equals the reference, lane by lane, modulo the width."""
    name, *modifiers = opcode.split(".")
    columns = [patterns(w, 700, SEED + i) for i, w in enumerate(widths)]
    arrays = [np.array(c, dtype=f"u{w // 8}") for c, w in zip(columns, widths, strict=True)]
    got = OPERATIONS[name](tuple(modifiers), *arrays)
    assert got.dtype == np.dtype(f"u{result_width // 8}")
    for lane, operands in enumerate(zip(*columns, strict=True)):
        want = reference(*operands) & ((1 << result_width) - 1)
        assert int(got[lane]) == want, (opcode, [hex(x) for x in operands], hex(want), hex(int(got[lane])))


def truncated_quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def clamp32(x: int) -> int:
    return max(-(1 << 31), min((1 << 31) - 1, x))


TYPES = [(kind, width) for kind in "us" for width in (16, 32, 64)]


@pytest.mark.parametrize(("kind", "w"), TYPES)
def test_arithmetic_of_each_type(kind: str, w: int) -> None:
    number: Callable[[int], int] = (lambda x: signed(x, w)) if kind == "s" else (lambda x: x)
    t = f"{kind}{w}"
    check(f"add.{t}", (w, w), w, lambda a, b: a + b)
    check(f"sub.{t}", (w, w), w, lambda a, b: a - b)
    check(f"mul.lo.{t}", (w, w), w, lambda a, b: a * b)
    check(f"mul.hi.{t}", (w, w), w, lambda a, b: (number(a) * number(b)) >> w)
    check(f"mad.lo.{t}", (w, w, w), w, lambda a, b, c: a * b + c)
    check(f"mad.hi.{t}", (w, w, w), w, lambda a, b, c: ((number(a) * number(b)) >> w) + c)
    check(f"sad.{t}", (w, w, w), w, lambda a, b, c: c + abs(number(a) - number(b)))
    check(f"min.{t}", (w, w), w, lambda a, b: min(number(a), number(b)))
    check(f"max.{t}", (w, w), w, lambda a, b: max(number(a), number(b)))
    # Unspecified by PTX; all ones is what the code for 32-bit division makes.
    check(f"div.{t}", (w, w), w, lambda a, b: truncated_quotient(number(a), number(b)) if b else -1)
    check(
        f"rem.{t}",
        (w, w),
        w,
        lambda a, b: number(a) - number(b) * truncated_quotient(number(a), number(b)) if b else -1,
    )
    check(f"shr.{t}", (w, 32), w, lambda a, n: number(a) >> min(n, w))
    if w < 64:
        check(f"mul.wide.{t}", (w, w), 2 * w, lambda a, b: number(a) * number(b))
        check(f"mad.wide.{t}", (w, w, 2 * w), 2 * w, lambda a, b, c: number(a) * number(b) + c)
    if kind == "s":
        check(f"abs.{t}", (w,), w, lambda a: abs(number(a)))
        check(f"neg.{t}", (w,), w, lambda a: -a)


@pytest.mark.parametrize("w", [16, 32, 64])
def test_logic_and_shifts(w: int) -> None:
    check(f"and.b{w}", (w, w), w, lambda a, b: a & b)
    check(f"or.b{w}", (w, w), w, lambda a, b: a | b)
    check(f"xor.b{w}", (w, w), w, lambda a, b: a ^ b)
    check(f"not.b{w}", (w,), w, lambda a: ~a)
    check(f"cnot.b{w}", (w,), w, lambda a: int(a == 0))
    check(f"shl.b{w}", (w, 32), w, lambda a, n: a << min(n, w))
    check(f"shr.b{w}", (w, 32), w, lambda a, n: a >> min(n, w))


def test_logic_of_predicates() -> None:
    p, q = np.array([False, False, True, True]), np.array([False, True, False, True])
    assert OPERATIONS["and"](("pred",), p, q).tolist() == [False, False, False, True]
    assert OPERATIONS["or"](("pred",), p, q).tolist() == [False, True, True, True]
    assert OPERATIONS["xor"](("pred",), p, q).tolist() == [False, True, True, False]
    assert OPERATIONS["not"](("pred",), p).tolist() == [True, True, False, False]


def test_saturated_and_24_bit_forms() -> None:
    def s(x: int) -> int:
        return signed(x, 32)

    check("add.sat.s32", (32, 32), 32, lambda a, b: clamp32(s(a) + s(b)))
    check("sub.sat.s32", (32, 32), 32, lambda a, b: clamp32(s(a) - s(b)))
    check("mad.hi.sat.s32", (32, 32, 32), 32, lambda a, b, c: clamp32(((s(a) * s(b)) >> 32) + s(c)))

    def check24(kind: str, n: Callable[[int], int]) -> None:
        check(f"mul24.lo.{kind}32", (32, 32), 32, lambda a, b: n(a) * n(b))
        check(f"mul24.hi.{kind}32", (32, 32), 32, lambda a, b: (n(a) * n(b)) >> 16)
        check(f"mad24.lo.{kind}32", (32, 32, 32), 32, lambda a, b, c: n(a) * n(b) + c)
        check(f"mad24.hi.{kind}32", (32, 32, 32), 32, lambda a, b, c: ((n(a) * n(b)) >> 16) + c)

    check24("u", lambda x: x & 0xFFFFFF)
    check24("s", lambda x: signed(x, 24))
    check(
        "mad24.hi.sat.s32", (32, 32, 32), 32, lambda a, b, c: clamp32(s((signed(a, 24) * signed(b, 24)) >> 16) + s(c))
    )
    check("min.relu.s32", (32, 32), 32, lambda a, b: max(0, min(s(a), s(b))))
    check("max.relu.s32", (32, 32), 32, lambda a, b: max(0, max(s(a), s(b))))


def test_packed_halves() -> None:
    def halves(f: Callable[[int, int], int]) -> Callable[[int, int], int]:
        return lambda a, b: (f(a & 0xFFFF, b & 0xFFFF) & 0xFFFF) | (f(a >> 16, b >> 16) & 0xFFFF) << 16

    def s(f: Callable[[int, int], int]) -> Callable[[int, int], int]:
        return halves(lambda a, b: f(signed(a, 16), signed(b, 16)))

    for kind in ("u16x2", "s16x2"):
        check(f"add.{kind}", (32, 32), 32, halves(lambda a, b: a + b))
    check("min.u16x2", (32, 32), 32, halves(min))
    check("max.u16x2", (32, 32), 32, halves(max))
    check("min.s16x2", (32, 32), 32, s(min))
    check("max.s16x2", (32, 32), 32, s(max))
    check("max.relu.s16x2", (32, 32), 32, s(lambda a, b: max(a, b, 0)))


@pytest.mark.parametrize("w", [32, 64])
def test_a_subtraction_carries_where_it_does_not_borrow(w: int) -> None:
    """As ptxas compiles it: `sub.cc; addc 0, 0` is the predicate of IADD3 itself."""
    a, b = np.array([5, 5, 5], f"u{w // 8}"), np.array([4, 5, 6], f"u{w // 8}")
    zero = np.zeros_like(a)
    _, carry = OPERATIONS["sub"](("cc", f"u{w}"), a, b)
    assert OPERATIONS["addc"]((f"u{w}",), zero, zero, carry).tolist() == [1, 1, 0]
    assert OPERATIONS["subc"]((f"u{w}",), zero, zero, carry).tolist() == [0, 0, (1 << w) - 1]
    _, carry = OPERATIONS["add"](("cc", f"u{w}"), a, ~b)
    assert OPERATIONS["subc"]((f"u{w}",), zero, zero, carry).tolist() == [0, (1 << w) - 1, (1 << w) - 1]


@pytest.mark.parametrize("w", [32, 64])
def test_carry_chains(w: int) -> None:
    """Numbers of four words, added, subtracted and multiplied by chains as nvcc writes them."""
    source = random.Random(SEED)
    left, right = ([[source.getrandbits(w) for _ in range(300)] for _ in range(4)] for _ in range(2))
    left[0][:3], right[0][:3] = [(1 << w) - 1] * 3, [1, 0, (1 << w) - 1]
    a, b = ([np.array(word, dtype=f"u{w // 8}") for word in number] for number in (left, right))

    def number(words: list[Any], lane: int) -> int:
        return sum(int(x[lane]) << (w * i) for i, x in enumerate(words))

    for first, then, sign in (("add", "addc", 1), ("sub", "subc", -1)):
        word, carry = OPERATIONS[first](("cc", f"u{w}"), a[0], b[0])
        words = [word]
        for i in (1, 2):
            word, carry = OPERATIONS[then](("cc", f"u{w}"), a[i], b[i], carry)
            words.append(word)
        words.append(OPERATIONS[then]((f"u{w}",), a[3], b[3], carry))
        for lane in range(300):
            assert number(words, lane) == (number(a, lane) + sign * number(b, lane)) % (1 << (4 * w))
    low, carry = OPERATIONS["mad"](("lo", "cc", f"u{w}"), a[0], b[0], a[1])
    high = OPERATIONS["madc"](("hi", f"u{w}"), a[0], b[0], b[1], carry)
    for lane in range(300):
        want = left[0][lane] * right[0][lane] + left[1][lane] + (right[1][lane] << w)
        assert number([low, high], lane) == want % (1 << (2 * w))


def test_funnel_shift() -> None:
    check("shf.l.clamp.b32", (32, 32, 32), 32, lambda a, b, c: ((b << 32 | a) << min(c, 32)) >> 32)
    check("shf.r.clamp.b32", (32, 32, 32), 32, lambda a, b, c: (b << 32 | a) >> min(c, 32))
    check("shf.l.wrap.b32", (32, 32, 32), 32, lambda a, b, c: ((b << 32 | a) << (c & 31)) >> 32)
    check("shf.r.wrap.b32", (32, 32, 32), 32, lambda a, b, c: (b << 32 | a) >> (c & 31))


def bit(x: int, i: int) -> int:
    return (x >> i) & 1


@pytest.mark.parametrize("w", [32, 64])
def test_bit_counts(w: int) -> None:
    check(f"popc.b{w}", (w,), 32, lambda a: bin(a).count("1"))
    check(f"clz.b{w}", (w,), 32, lambda a: w - a.bit_length())
    check(f"brev.b{w}", (w,), w, lambda a: int(f"{a:0{w}b}"[::-1], 2))

    def plain(a: int) -> int:
        return ~a & ((1 << w) - 1) if bit(a, w - 1) else a

    check(f"bfind.u{w}", (w,), 32, lambda a: a.bit_length() - 1)
    check(f"bfind.s{w}", (w,), 32, lambda a: plain(a).bit_length() - 1)
    check(f"bfind.shiftamt.u{w}", (w,), 32, lambda a: w - a.bit_length() if a else -1)
    check(f"bfind.shiftamt.s{w}", (w,), 32, lambda a: w - plain(a).bit_length() if plain(a) else -1)


@pytest.mark.parametrize("w", [32, 64])
def test_bit_fields(w: int) -> None:
    def extract(kind: str) -> Callable[[int, int, int], int]:
        def bfe(a: int, start: int, length: int) -> int:
            start, length = start & 255, length & 255
            fill = 0 if kind == "u" or length == 0 else bit(a, min(start + length - 1, w - 1))
            return sum((bit(a, start + i) if i < length and start + i < w else fill) << i for i in range(w))

        return bfe

    def insert(a: int, b: int, start: int, length: int) -> int:
        start, length = start & 255, length & 255
        for i in range(length):
            if start + i < w:
                b = b & ~(1 << (start + i)) | bit(a, i) << (start + i)
        return b

    check(f"bfe.u{w}", (w, 32, 32), w, extract("u"))
    check(f"bfe.s{w}", (w, 32, 32), w, extract("s"))
    check(f"bfi.b{w}", (w, w, 32, 32), w, insert)


def test_masks_and_extension() -> None:
    def mask(mode: str) -> Callable[[int, int], int]:
        def bmsk(a: int, b: int) -> int:
            if mode == "wrap":
                a, b = a & 31, b & 31
            return sum(1 << i for i in range(a, min(a + b, 32)))

        return bmsk

    def extension(mode: str, kind: str) -> Callable[[int, int], int]:
        def szext(a: int, n: int) -> int:
            if n >= 32 and mode == "clamp":
                return a
            n &= 31
            low = a & ((1 << n) - 1)
            return low - (1 << n) if kind == "s" and n and bit(low, n - 1) else low

        return szext

    for mode in ("clamp", "wrap"):
        check(f"bmsk.{mode}.b32", (32, 32), 32, mask(mode))
        for kind in "us":
            check(f"szext.{mode}.{kind}32", (32, 32), 32, extension(mode, kind))


def test_find_nth_set_bit() -> None:
    """The manual's examples, and its loop on random masks."""

    def word(*numbers: int) -> Any:
        return np.array([x & 0xFFFFFFFF for x in numbers], dtype="u4")

    got = OPERATIONS["fns"](("b32",), word(0xAAAAAAAA), word(3, 3, 2, 2), word(1, -1, 1, -1))
    assert got.tolist() == [3, 3, 3, 1]
    source = random.Random(SEED)
    masks = [source.getrandbits(32) & source.getrandbits(32) for _ in range(500)]
    bases, offsets = [source.randrange(32) for _ in masks], [source.randint(-9, 9) for _ in masks]
    got = OPERATIONS["fns"](("b32",), word(*masks), word(*bases), word(*offsets))
    for lane, (mask, base, offset) in enumerate(zip(masks, bases, offsets, strict=True)):
        step = 1 if offset >= 0 else -1
        walk = range(base, 32 if step > 0 else -1, step) if offset else [base]
        hits = [i for i in walk if bit(mask, i)]
        want = hits[max(abs(offset), 1) - 1] if len(hits) >= max(abs(offset), 1) else 0xFFFFFFFF
        assert int(got[lane]) == want


def test_byte_permute() -> None:
    def generic(a: int, b: int, c: int) -> int:
        source = (b << 32 | a).to_bytes(8, "little")
        result = 0
        for i in range(4):
            control = (c >> (4 * i)) & 15
            byte = source[control & 7]
            result |= (255 * (byte >> 7) if control & 8 else byte) << (8 * i)
        return result

    check("prmt.b32", (32, 32, 32), 32, generic)
    # Bytes 3 to 0 of the result by the control: the table of the PTX manual.
    table = {
        "f4e": ("3210", "4321", "5432", "6543"),
        "b4e": ("5670", "6701", "7012", "0123"),
        "rc8": ("0000", "1111", "2222", "3333"),
        "ecl": ("3210", "3211", "3222", "3333"),
        "ecr": ("0000", "1110", "2210", "3210"),
        "rc16": ("1010", "3232", "1010", "3232"),
    }
    for mode, rows in table.items():
        got = OPERATIONS["prmt"](
            ("b32", mode), np.uint32(0x03020100), np.uint32(0x07060504), np.array([0, 1, 2, 3 | 0xFFF0], dtype="u4")
        )
        assert [f"{int(x):08x}"[1::2] for x in got] == list(rows), mode
        for control, row in enumerate(rows):
            got = OPERATIONS["prmt"](
                ("b32", mode), np.array([0x03020100], "u4"), np.uint32(0x07060504), np.uint32(control)
            )
            assert f"{int(got[0]):08x}"[1::2] == row, mode
    source = random.Random(SEED)
    for _ in range(200):
        a, b, c = (source.getrandbits(32) for _ in range(3))
        got = OPERATIONS["prmt"](("b32",), np.array([a], "u4"), np.array([b], "u4"), np.uint32(c))
        assert int(got[0]) == generic(a, b, c)


def test_lookup_logic_of_all_tables() -> None:
    a, b, c = (np.array(patterns(32, 300, SEED + i), dtype="u4") for i in range(3))
    q = np.arange(a.size) % 2 == 0
    for table in range(256):
        want = np.zeros_like(a)
        for row in range(8):
            if table >> row & 1:
                want |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
        assert np.array_equal(OPERATIONS["lop3"](("b32",), a, b, c, np.uint32(table)), want)
        got, p = OPERATIONS["lop3"](("or", "b32"), a, b, c, np.uint32(table), q)
        assert np.array_equal(got, want)
        assert np.array_equal(p, (want != 0) | q)
        assert np.array_equal(OPERATIONS["lop3"](("and", "b32"), a, b, c, table, q)[1], (want != 0) & q)


def test_dot_products() -> None:
    def part(x: int, i: int, width: int, kind: str) -> int:
        low = (x >> (width * i)) & ((1 << width) - 1)
        return signed(low, width) if kind == "s" else low

    for ka, kb in itertools.product("us", "us"):
        check(
            f"dp4a.{ka}32.{kb}32",
            (32, 32, 32),
            32,
            lambda a, b, c, ka=ka, kb=kb: c + sum(part(a, i, 8, ka) * part(b, i, 8, kb) for i in range(4)),
        )
        for mode, base in (("lo", 0), ("hi", 2)):
            check(
                f"dp2a.{mode}.{ka}32.{kb}32",
                (32, 32, 32),
                32,
                lambda a, b, c, ka=ka, kb=kb, base=base: (
                    c + sum(part(a, i, 16, ka) * part(b, base + i, 8, kb) for i in range(2))
                ),
            )


@pytest.mark.parametrize(
    ("opcode", "named"),
    [
        ("add.cc.u16", "cc"),
        ("add.sat.u32", "sat"),
        ("mul.wide.u64", "wide"),
        ("mul.u32", "lacks"),
        ("vadd.u32.u32.u32", "vadd"),
        ("add.rn.u32", "rn"),
        ("min.relu.u32", "relu"),
        ("shl.u32", "u32"),
        ("prmt.b32.f5e", "f5e"),
    ],
)
def test_what_is_not_ptx_is_named(opcode: str, named: str) -> None:
    name, *modifiers = opcode.split(".")
    with pytest.raises(Unsupported, match=named):
        resolve(name, tuple(modifiers))


def test_immediates_broadcast_and_the_function_is_made_once() -> None:
    x = np.arange(5, dtype="u4")
    assert resolve("add", ("u32",)) is resolve("add", ("u32",))
    cases: list[tuple[str, tuple[str, ...], tuple[Any, ...]]] = [
        ("add", ("s32",), (x, np.uint32(0xFFFFFFFF))),
        ("bfe", ("s32",), (x, np.uint32(1), np.uint32(2))),
        ("add", ("s16x2",), (x, np.uint32(0x10001))),
        ("dp4a", ("s32", "s32"), (np.uint32(0x01010101), x, np.uint32(1))),
        ("shl", ("b32",), (np.uint32(1), x)),
    ]
    for name, modifiers, operands in cases:
        spread = [np.broadcast_to(o, x.shape).copy() for o in operands]
        assert np.array_equal(OPERATIONS[name](modifiers, *operands), OPERATIONS[name](modifiers, *spread))
