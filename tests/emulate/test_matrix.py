"""mma against exact sums, with the fragment layouts as the PTX manual words them, one by one."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from rglink.emulate import matrix
from rglink.emulate.arithmetic import OPERATIONS, resolve
from rglink.emulate.errors import Unsupported
from tests.emulate.exact import LAYOUTS, rounded, value

Place = Callable[[int, int, int], tuple[int, int]]
WARPS = 3

# (group, thread in group, element) to (row, column): the formulas of "Matrix Fragments for mma.<shape>".
A: dict[tuple[str, int], Place] = {
    ("m16n8k8", 16): lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
    ("m16n8k16", 16): lambda g, t, i: (g if i < 2 or 4 <= i < 6 else g + 8, t * 2 + (i & 1) + (0 if i < 4 else 8)),
    ("m16n8k4", 32): lambda g, t, i: (g if i == 0 else g + 8, t),
    ("m16n8k8", 32): lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4),
    ("m8n8k4", 64): lambda g, t, i: (g, t),
    ("m16n8k4", 64): lambda g, t, i: (g if i == 0 else g + 8, t),
    ("m16n8k8", 64): lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4),
    ("m16n8k16", 64): lambda g, t, i: (g, i * 2 + t) if i % 2 == 0 else (g + 8, i * 2 - 2 + t),
    ("m8n8k16", 8): lambda g, t, i: (g, t * 4 + i),
    ("m16n8k16", 8): lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3)),
    ("m16n8k32", 8): lambda g, t, i: (g if i < 4 or 8 <= i < 12 else g + 8, t * 4 + (i & 3) + (0 if i < 8 else 16)),
    ("m8n8k32", 4): lambda g, t, i: (g, t * 8 + i),
    ("m16n8k32", 4): lambda g, t, i: (g if i < 8 else g + 8, t * 8 + (i & 7)),
    ("m16n8k64", 4): lambda g, t, i: (g if i < 8 or 16 <= i < 24 else g + 8, t * 8 + (i & 7) + (0 if i < 16 else 32)),
}
B: dict[tuple[str, int], Place] = {
    ("m16n8k8", 16): lambda g, t, i: (t * 2 + i, g),
    ("m16n8k16", 16): lambda g, t, i: (t * 2 + (i & 1) + (0 if i < 2 else 8), g),
    ("m16n8k4", 32): lambda g, t, i: (t, g),
    ("m16n8k8", 32): lambda g, t, i: (t if i == 0 else t + 4, g),
    ("m8n8k4", 64): lambda g, t, i: (t, g),
    ("m16n8k4", 64): lambda g, t, i: (t, g),
    ("m16n8k8", 64): lambda g, t, i: (t + 4 * i, g),
    ("m16n8k16", 64): lambda g, t, i: (t + 4 * i, g),
    ("m8n8k16", 8): lambda g, t, i: (t * 4 + i, g),
    ("m16n8k16", 8): lambda g, t, i: (t * 4 + i, g),
    ("m16n8k32", 8): lambda g, t, i: (t * 4 + (i & 3) + (0 if i < 4 else 16), g),
    ("m8n8k32", 4): lambda g, t, i: (t * 8 + i, g),
    ("m16n8k32", 4): lambda g, t, i: (t * 8 + i, g),
    ("m16n8k64", 4): lambda g, t, i: (t * 8 + (i & 7) + (0 if i < 8 else 32), g),
}


def accumulator(g: int, t: int, i: int) -> tuple[int, int]:
    return (g if i < 2 else g + 8, t * 2 + (i & 1))


def sizes(shape: str) -> tuple[int, int, int]:
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


def element(fragment: np.ndarray, warp: int, lane: int, i: int, width: int) -> int:
    """Element i of a lane, its registers read as one string of bits, low end first."""
    each = max(1, 32 // width)
    return int(fragment[warp, lane, i // each]) >> (width * (i % each)) & ((1 << width) - 1)


def spread(fragment: np.ndarray, warp: int, width: int, place: Place) -> dict[tuple[int, int], int]:
    count = fragment.shape[2] * max(1, 32 // width)
    return {
        place(lane // 4, lane % 4, i): element(fragment, warp, lane, i, width)
        for lane in range(32)
        for i in range(count)
    }


def registers(total_elements: int, width: int) -> int:
    return total_elements // 32 // max(1, 32 // width)


def fragments(shape: str, width: int, sums: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    m, n, k = sizes(shape)
    source = np.random.default_rng(seed)
    word = "u8" if width == 64 else "u4"

    def random(count: int, kind: str) -> np.ndarray:
        return source.integers(0, np.iinfo(kind).max, (WARPS, 32, count), dtype=kind, endpoint=True)

    return (
        random(registers(m * k, width), word),
        random(registers(k * n, width), word),
        random(registers(m * n, sums), "u8" if sums == 64 else "u4"),
    )


@pytest.mark.parametrize(
    ("shape", "left", "right", "satfinite"),
    [
        ("m8n8k16", "s8", "s8", ""),
        ("m16n8k16", "u8", "s8", ""),
        ("m16n8k32", "s8", "u8", ""),
        ("m16n8k32", "u8", "u8", "satfinite"),
        ("m8n8k32", "s4", "u4", ""),
        ("m16n8k32", "u4", "u4", ""),
        ("m16n8k64", "s4", "s4", "satfinite"),
    ],
)
def test_integers(shape: str, left: str, right: str, satfinite: str) -> None:
    m, n, k = sizes(shape)
    width = int(left[1:])
    a, b, c = fragments(shape, width, 32, 1)
    c[0] = 0x7FFFFFF0
    parts = ("sync", "aligned", shape, "row", "col", *([satfinite] if satfinite else []), "s32", left, right, "s32")
    got = OPERATIONS["mma"](parts, a, b, c)

    def number(kind: str, x: int) -> int:
        w = int(kind[1:])
        return x - (1 << w) if kind[0] == "s" and x >> (w - 1) else x

    for warp in range(WARPS):
        x, y, z = (
            spread(a, warp, width, A[shape, width]),
            spread(b, warp, width, B[shape, width]),
            spread(c, warp, 32, accumulator),
        )
        d = spread(got, warp, 32, accumulator)
        assert len(x) == m * k
        assert len(y) == k * n
        for row in range(m):
            for column in range(n):
                want = number("s32", z[row, column])
                want += sum(number(left, x[row, i]) * number(right, y[i, column]) for i in range(k))
                if satfinite:
                    want = max(-(1 << 31), min((1 << 31) - 1, want))
                assert d[row, column] == want & 0xFFFFFFFF


def small_numbers(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Registers that hold numbers of few bits, so that no order of summation loses any."""
    source = np.random.default_rng(seed)
    numbers = source.integers(-16, 17, shape).astype("f4") / 4
    if kind == "f64":
        return numbers.astype("f8").view("u8")
    if kind in ("tf32", "f32"):
        return numbers.view("u4")
    halves = source.integers(-16, 17, (*shape, 2)).astype("f4") / 4
    if kind == "f16":
        return halves.astype("f2").view("u4")[..., 0]
    if kind == "bf16":
        return (halves.view("u4") >> np.uint32(16)).astype("u2").view("u4")[..., 0]
    bytes_ = source.integers(0, 0x38 if kind == "e5m2" else 0x40, (*shape, 4)).astype("u1")
    signs = source.integers(0, 2, bytes_.shape).astype("u1") << np.uint8(7)
    words: np.ndarray = (bytes_ | signs).view("u4")
    return words[..., 0]


def float8(kind: str, bits: int) -> Fraction:
    fraction, bias = (3, 7) if kind == "e4m3" else (2, 15)
    field, low = (bits & 127) >> fraction, bits & ((1 << fraction) - 1)
    size = (low + (1 << fraction) * (field > 0)) * Fraction(2) ** (max(field, 1) - bias - fraction)
    return -size if bits & 128 else size


def exact(kind: str, bits: int) -> Fraction:
    if kind in ("e4m3", "e5m2"):
        return float8(kind, bits)
    number = value(LAYOUTS["f32" if kind == "tf32" else kind], bits)
    assert isinstance(number, Fraction)
    return number


@pytest.mark.parametrize(
    ("shape", "kind", "result", "addend"),
    [
        ("m16n8k8", "f16", "f32", "f32"),
        ("m16n8k8", "f16", "f16", "f16"),
        ("m16n8k16", "f16", "f32", "f32"),
        ("m16n8k16", "f16", "f16", "f16"),
        ("m16n8k16", "f16", "f16", "f32"),
        ("m16n8k8", "bf16", "f32", "f32"),
        ("m16n8k16", "bf16", "f32", "f32"),
        ("m16n8k4", "tf32", "f32", "f32"),
        ("m16n8k8", "tf32", "f32", "f32"),
        ("m16n8k16", "e4m3", "f32", "f32"),
        ("m16n8k32", "e5m2", "f32", "f32"),
        ("m8n8k4", "f64", "f64", "f64"),
        ("m16n8k4", "f64", "f64", "f64"),
        ("m16n8k8", "f64", "f64", "f64"),
        ("m16n8k16", "f64", "f64", "f64"),
    ],
)
def test_floats(shape: str, kind: str, result: str, addend: str) -> None:
    m, n, k = sizes(shape)
    width = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64}.get(kind, 8)
    of_sums = {"f16": 16, "f32": 32, "f64": 64}
    a = small_numbers(kind, (WARPS, 32, registers(m * k, width)), 1)
    b = small_numbers(kind, (WARPS, 32, registers(k * n, width)), 2)
    c = small_numbers(addend, (WARPS, 32, registers(m * n, of_sums[addend])), 3)
    got = OPERATIONS["mma"](("sync", "aligned", shape, "row", "col", result, kind, kind, addend), a, b, c)
    assert got.shape == (WARPS, 32, registers(m * n, of_sums[result]))
    for warp in range(WARPS):
        x, y = spread(a, warp, width, A[shape, width]), spread(b, warp, width, B[shape, width])
        z, d = spread(c, warp, of_sums[addend], accumulator), spread(got, warp, of_sums[result], accumulator)
        for row in range(m):
            for column in range(n):
                want = exact(addend, z[row, column])
                want += sum((exact(kind, x[row, i]) * exact(kind, y[i, column]) for i in range(k)), Fraction(0))
                assert d[row, column] & ~LAYOUTS[result].sign == rounded(LAYOUTS[result], "rn", abs(want))
                assert want == 0 or (want < 0) == bool(d[row, column] & LAYOUTS[result].sign)


def test_the_stated_order_of_f64_and_specials() -> None:
    """A chain of fused multiply-adds, k ascending; infinities and NaNs go through."""
    source = np.random.default_rng(4)
    a, b, c = (source.standard_normal((1, 32, count)).view("u8") for count in (1, 1, 2))
    got = OPERATIONS["mma"](("sync", "aligned", "m8n8k4", "row", "col", "f64", "f64", "f64", "f64"), a, b, c)
    x, y = spread(a, 0, 64, A["m8n8k4", 64]), spread(b, 0, 64, B["m8n8k4", 64])
    z, d = spread(c, 0, 64, accumulator), spread(got, 0, 64, accumulator)
    f64 = LAYOUTS["f64"]
    for (row, column), bits in z.items():
        total = exact("f64", bits)
        for k in range(4):
            total = exact("f64", rounded(f64, "rn", total + exact("f64", x[row, k]) * exact("f64", y[k, column])))
        assert d[row, column] == rounded(f64, "rn", total)
    halves = np.full((1, 32, 4), 0x7C007C00, dtype="u4")
    zeros = np.zeros((1, 32, 2), dtype="u4")
    got = OPERATIONS["mma"](
        ("sync", "aligned", "m16n8k16", "row", "col", "f32", "f16", "f16", "f32"),
        halves,
        zeros,
        np.zeros((1, 32, 4), "u4"),
    )
    assert np.all(got == 0x7FFFFFFF)


def test_tf32_ignores_the_low_bits() -> None:
    parts = ("sync", "aligned", "m16n8k4", "row", "col", "f32", "tf32", "tf32", "f32")
    a = small_numbers("tf32", (1, 32, 2), 1)
    b, c = small_numbers("tf32", (1, 32, 1), 2), small_numbers("f32", (1, 32, 4), 3)
    assert np.array_equal(OPERATIONS["mma"](parts, a | np.uint32(0x1FFF), b, c), OPERATIONS["mma"](parts, a, b, c))


def test_load_store_and_transpose_of_8x8_matrices() -> None:
    rows = np.arange(2 * 4 * 64, dtype="u2").reshape(2, 4, 8, 8)
    loaded = matrix.load_fragments(rows)
    turned = matrix.load_fragments(rows, transpose=True)
    assert loaded.shape == (2, 32, 4)
    for lane in range(32):
        row, column = lane // 4, 2 * (lane % 4)
        for number in range(4):
            low, high = rows[1, number, row, column], rows[1, number, row, column + 1]
            assert loaded[1, lane, number] == int(low) | int(high) << 16
            low, high = rows[1, number, column, row], rows[1, number, column + 1, row]
            assert turned[1, lane, number] == int(low) | int(high) << 16
    assert np.array_equal(matrix.store_rows(loaded), rows)
    assert np.array_equal(matrix.store_rows(turned, transpose=True), rows)
    moved = OPERATIONS["movmatrix"](("sync", "aligned", "m8n8", "trans", "b16"), loaded[:, :, :1])
    assert np.array_equal(moved, turned[:, :, :1])
    assert matrix.matrix_rows(4)[3].tolist() == [24, 25, 26, 27, 28, 29, 30, 31]


def test_an_a_operand_loaded_by_ldmatrix_fits_mma() -> None:
    """The four matrices of an x4 load, in the order that the manual's layouts imply, make the A fragment."""
    whole = np.arange(256, dtype="u2").reshape(1, 16, 16)
    quarters = np.stack([whole[:, r : r + 8, c : c + 8] for c in (0, 8) for r in (0, 8)], axis=1)
    loaded = matrix.load_fragments(quarters)
    assert np.array_equal(loaded, matrix.scatter(whole, matrix.Shape(16, 8, 16).a(16)))


@pytest.mark.parametrize(
    "opcode",
    [
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16",
        "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc",
        "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32",
        "movmatrix.sync.aligned.m8n8.b16",
    ],
)
def test_what_is_not_supported_is_named(opcode: str) -> None:
    name, *modifiers = opcode.split(".")
    with pytest.raises(Unsupported, match=name):
        resolve(name, tuple(modifiers))
