"""The approximate instructions: within the errors and with the special results that the PTX manual states."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from rglink.emulate.arithmetic import OPERATIONS
from rglink.emulate.softfloat import from_bf16

INF, NAN = math.inf, math.nan
SOURCE = np.random.default_rng(11)


def f32(*numbers: float) -> np.ndarray:
    return np.array(numbers, dtype="f4").view("u4")


def run(opcode: str, *operands: np.ndarray) -> np.ndarray:
    name, *modifiers = opcode.split(".")
    result: np.ndarray = OPERATIONS[name](tuple(modifiers), *operands)
    return result


SPECIAL: dict[str, list[tuple[float, float]]] = {
    "rcp.approx.f32": [(-INF, -0.0), (-0.0, -INF), (0.0, INF), (INF, 0.0), (NAN, NAN)],
    "sqrt.approx.f32": [(-INF, NAN), (-1.0, NAN), (-0.0, -0.0), (0.0, 0.0), (INF, INF), (NAN, NAN)],
    "rsqrt.approx.f32": [(-INF, NAN), (-1.0, NAN), (-0.0, -INF), (0.0, INF), (INF, 0.0), (NAN, NAN)],
    "sin.approx.f32": [(-INF, NAN), (-0.0, -0.0), (0.0, 0.0), (INF, NAN), (NAN, NAN)],
    "cos.approx.f32": [(-INF, NAN), (-0.0, 1.0), (0.0, 1.0), (INF, NAN), (NAN, NAN)],
    "lg2.approx.f32": [(-INF, NAN), (-1.0, NAN), (-0.0, -INF), (0.0, -INF), (INF, INF), (NAN, NAN)],
    "ex2.approx.f32": [(-INF, 0.0), (-0.0, 1.0), (0.0, 1.0), (INF, INF), (NAN, NAN)],
    "tanh.approx.f32": [(-INF, -1.0), (-0.0, -0.0), (0.0, 0.0), (INF, 1.0), (NAN, NAN)],
}


@pytest.mark.parametrize("opcode", sorted(SPECIAL))
def test_special_operands(opcode: str) -> None:
    got = run(opcode, f32(*(a for a, _ in SPECIAL[opcode])))
    for bits, (operand, want) in zip(got.tolist(), SPECIAL[opcode], strict=True):
        expected = 0x7FFFFFFF if math.isnan(want) else int(f32(want)[0])
        assert bits == expected, (opcode, operand)


@pytest.mark.parametrize(
    ("opcode", "function", "low", "high", "relative", "absolute"),
    [
        ("rcp.approx.f32", lambda x: 1 / x, 1e-37, 1e37, 2**-23, 0.0),
        ("sqrt.approx.f32", math.sqrt, 0.0, 1e38, 2**-23, 0.0),
        ("rsqrt.approx.f32", lambda x: 1 / math.sqrt(x), 1e-37, 1e38, 2**-22.9, 0.0),
        ("sin.approx.f32", math.sin, -2 * math.pi, 2 * math.pi, 0.0, 2**-20.5),
        ("cos.approx.f32", math.cos, -100 * math.pi, 100 * math.pi, 0.0, 2**-20.5),
        ("lg2.approx.f32", math.log2, 0.5, 2.0, 0.0, 2**-22),
        ("lg2.approx.f32", math.log2, 2.0, 1e38, 2**-22, 0.0),
        ("ex2.approx.f32", lambda x: 2.0**x, -126.0, 127.9, 2**-22, 0.0),
        ("tanh.approx.f32", math.tanh, -9.0, 9.0, 2**-11, 0.0),
    ],
)
def test_errors_stay_within_the_manual(
    opcode: str, function: Callable[[float], float], low: float, high: float, relative: float, absolute: float
) -> None:
    x = SOURCE.uniform(low, high, 2000).astype("f4")
    x = x[(x > low) & (x < high)]
    got = run(opcode, x.view("u4")).view("f4")
    for operand, result in zip(x.tolist(), got.tolist(), strict=True):
        want = function(operand)
        assert abs(result - want) <= relative * abs(want) + absolute, (opcode, operand)
    assert np.array_equal(run(opcode, x.view("u4")), got.view("u4"))


def test_division() -> None:
    a, b = SOURCE.uniform(-1e3, 1e3, 1000).astype("f4"), SOURCE.uniform(-1e3, 1e3, 1000).astype("f4")
    exact = a.astype("f8") / b.astype("f8")
    for mode in ("approx", "full"):
        got = run(f"div.{mode}.f32", a.view("u4"), b.view("u4")).view("f4")
        assert np.all(np.abs(got - exact) <= 2 * np.spacing(np.abs(exact).astype("f4")))
    # Above 2**126 the reciprocal underflows: zero of the sign, and NaN for an infinite dividend.
    big = f32(2.0**127, -(2.0**127), 2.0**127, INF, INF)
    got = run("div.approx.f32", f32(1e38, 1e38, INF, 1.0, INF), big)
    assert got.tolist() == [0, 1 << 31, 0x7FFFFFFF, 0, 0x7FFFFFFF]
    assert run("div.full.f32", f32(2.0**127), f32(2.0**127)).view("f4").tolist() == [1.0]


def test_flushing() -> None:
    tiny = f32(1e-40, -1e-40)
    assert run("rcp.approx.ftz.f32", tiny).view("f4").tolist() == [INF, -INF]
    assert run("ex2.approx.ftz.f32", f32(-130.0)).tolist() == [0]
    assert run("ex2.approx.f32", f32(-130.0)).tolist() == [1 << 19]
    assert run("sqrt.approx.ftz.f32", tiny).tolist() == [0, 1 << 31]
    assert run("tanh.approx.f32", tiny).tolist() == tiny.tolist()


def test_gross_approximations_of_f64() -> None:
    x = np.array([3.0, -0.0, 0.0, INF, -INF, NAN, 5e-324, -5e-324], dtype="f8").view("u8")
    got = run("rcp.approx.ftz.f64", x)
    assert not np.any(got & np.uint64(0xFFFFFFFF))
    numbers = got.view("f8").tolist()
    assert abs(numbers[0] * 3 - 1) < 2**-19
    assert numbers[1:5] == [-INF, INF, 0.0, -0.0]
    assert int(got[5]) == 0x7FFFFFFF00000000
    assert numbers[6:] == [INF, -INF]
    # Subnormal words of operand and result are zeros.
    edge = np.array([1e-310, -1e-310, 1.7e308, -1.7e308], dtype="f8").view("u8")
    assert run("rcp.approx.ftz.f64", edge).tolist() == np.array([INF, -INF, 0.0, -0.0]).view("u8").tolist()
    assert run("rsqrt.approx.ftz.f64", edge[:2]).view("f8").tolist() == [INF, -INF]
    roots = run("rsqrt.approx.ftz.f64", x)
    assert abs(roots.view("f8")[0] ** 2 * 3 - 1) < 2**-18
    assert roots.view("f8").tolist()[6:] == [INF, -INF]
    assert int(roots[4]) == 0x7FFFFFFF00000000
    assert run("rsqrt.approx.f64", np.array([4.0, 0.25]).view("u8")).view("f8").tolist() == [0.5, 2.0]


def test_halves() -> None:
    every = np.arange(1 << 16, dtype="u2")
    with np.errstate(all="ignore"):
        f16 = every.view("f2").astype("f8")
        bf16 = from_bf16(every).astype("f8")
        for opcode, x, relative, absolute in (
            ("tanh.approx.f16", f16, 0.0, 2**-10.987),
            ("tanh.approx.bf16", bf16, 0.0, 2**-8),
            ("ex2.approx.f16", f16, 2**-9.9, 2.0**-25),
            ("ex2.approx.ftz.bf16", bf16, 2**-7, 2.0**-126),
        ):
            bits = run(opcode, every)
            got = (from_bf16(bits) if opcode.endswith("bf16") else bits.view("f2")).astype("f8")
            want = np.tanh(x) if opcode.startswith("tanh") else np.exp2(x)
            inside = np.isfinite(got) & np.isfinite(want)
            assert np.all(np.abs(got - want)[inside] <= (relative * np.abs(want) + absolute)[inside]), opcode
            assert np.array_equal(np.isnan(got), np.isnan(x)), opcode
    pair = np.array([0x3C000000, 0x00003C00], dtype="u4")
    assert run("ex2.approx.f16x2", pair).tolist() == [0x40003C00, 0x3C004000]
