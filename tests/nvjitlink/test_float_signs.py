"""Negation and absolute value keep the bits of a NaN where they can be seen."""

from __future__ import annotations

import re

import numpy as np
import pytest

from rglink.emulate import load
from rglink.nvjitlink.job import Route

from .support import ROUTES, ptx

KINDS = {"half": 16, "float": 32, "double": 64}
SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}


def kernel(kind: str, *lines: str) -> str:
    """A kernel that stores `%r`, which `lines` make of `%x`."""
    suffix = SUFFIX[kind]
    body = "\n  ".join(lines)
    return f"""
define ptx_kernel void @k(ptr %a, ptr %out) {{
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %pa = getelementptr {kind}, ptr %a, i32 %t
  %po = getelementptr {kind}, ptr %out, i32 %t
  %x = load {kind}, ptr %pa
  {body}
  store {kind} %r, ptr %po
  ret void
}}
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare {kind} @llvm.fabs.{suffix}({kind})
declare {kind} @llvm.copysign.{suffix}({kind}, {kind})
"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("arch", ["75", "100"])
@pytest.mark.parametrize("operation", ["fneg", "fabs", "both", "copysign"])
def test_payloads_and_signs_survive(route: Route, arch: str, kind: str, operation: str) -> None:
    bits = KINDS[kind]
    absolute = f"call {kind} @llvm.fabs.{SUFFIX[kind]}({kind} %x)"
    lines = {
        "fneg": (f"%r = fneg {kind} %x",),
        "fabs": (f"%r = {absolute}",),
        "copysign": (f"%r = call {kind} @llvm.copysign.{SUFFIX[kind]}({kind} %x, {kind} -1.0)",),
        "both": (f"%m = {absolute}", f"%n = fneg {kind} %m", f"%c = fcmp ole {kind} %x, 1.0",
                 f"%r = select i1 %c, {kind} %x, {kind} %n"),
    }[operation]  # fmt: skip
    sign = 1 << bits - 1
    infinity = int(np.array(np.inf, f"f{bits // 8}").view(f"u{bits // 8}"))
    numbers = [0, 1, infinity - 1, infinity, infinity + 1, infinity + 5, sign - 1]
    values = np.array([*numbers, *(n | sign for n in numbers)], f"u{bits // 8}")
    out = np.zeros_like(values)
    load(ptx(kernel(kind, *lines), arch, route).encode())["k"][1, len(values)](values, out)
    floats = values.view(f"f{bits // 8}")
    expected = {
        "fneg": values ^ values.dtype.type(sign),
        "fabs": values & values.dtype.type(sign - 1),
        "copysign": values | values.dtype.type(sign),
        "both": np.where(floats <= 1, values, values | values.dtype.type(sign)),
    }[operation]
    assert out.tolist() == expected.tolist()


@pytest.mark.parametrize("route", ROUTES)
def test_a_sign_that_arithmetic_uses_stays_free(route: Route) -> None:
    text = ptx(
        kernel("float", "%m = call float @llvm.fabs.f32(float %x)", "%n = fneg float %m", "%r = fdiv float %n, %x"),
        "75",
        route,
    )
    assert re.search(r"\babs\.f32", text)
    assert re.search(r"\bneg\.f32", text)
