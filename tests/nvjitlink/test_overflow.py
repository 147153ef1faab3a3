"""Multiplications that report overflow, of every width, on both routes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rglink.emulate import load
from rglink.nvjitlink.job import Route

from .support import ROUTES, ptx

WIDTHS = (8, 16, 32, 64)


def kernel(bits: int, signed: bool) -> str:
    """`flags[t] = overflow of a[t] * b[t]; low[t] = the product`."""
    kind = f"i{bits}"
    name = f"llvm.{'s' if signed else 'u'}mul.with.overflow.{kind}"
    return f"""
define ptx_kernel void @k(ptr %a, ptr %b, ptr %low, ptr %flags) {{
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %pa = getelementptr {kind}, ptr %a, i32 %t
  %pb = getelementptr {kind}, ptr %b, i32 %t
  %pl = getelementptr {kind}, ptr %low, i32 %t
  %pf = getelementptr i8, ptr %flags, i32 %t
  %x = load {kind}, ptr %pa
  %y = load {kind}, ptr %pb
  %both = call {{ {kind}, i1 }} @{name}({kind} noundef %x, {kind} %y)
  %product = extractvalue {{ {kind}, i1 }} %both, 0
  %flag = extractvalue {{ {kind}, i1 }} %both, 1
  %byte = zext i1 %flag to i8
  store {kind} %product, ptr %pl
  store i8 %byte, ptr %pf
  ret void
}}
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare {{ {kind}, i1 }} @{name}({kind}, {kind})
"""


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("route", ROUTES)
def test_overflow_is_told(route: Route, bits: int, signed: bool) -> None:
    half = 1 << bits - 1
    numbers = [0, 1, 2, 3, half - 1, half, half + 1, 2 * half - 1, 1 << bits // 2, (1 << bits // 2) - 1]
    pairs = list(itertools.product(numbers, numbers))
    a, b = (np.array(column, dtype=f"u{bits // 8}") for column in zip(*pairs, strict=True))
    low, flags = np.empty_like(a), np.full(len(pairs), 9, np.uint8)
    load(ptx(kernel(bits, signed), "75", route).encode())["k"][1, len(pairs)](a, b, low, flags)
    for (x, y), product, flag in zip(pairs, low.tolist(), flags.tolist(), strict=True):
        signs = 2 * half if signed else 0
        exact = (x - signs * (x >= half)) * (y - signs * (y >= half))
        fits = -half <= exact < half if signed else exact < 2 * half
        assert (product, flag) == (exact % (2 * half), not fits)
