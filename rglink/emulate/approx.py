"""The approximate floating-point instructions, as functions of float64 numbers.

The results are the exact ones to about 2**-50, rounded once by the caller to the instruction's format: better than
the errors that the PTX ISA allows (2 ulp for div and ex2, 1 ulp for rcp, relative 2**-23 for sqrt, 2**-22.9 for rsqrt,
2**-22 for lg2, 2**-11 for tanh, absolute 2**-20.5 for sin and cos within 2 pi), and the same at every run. A device
differs in the last bits. Semantics of the special operands: PTX ISA 9.x, "Floating-Point Instructions".
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rglink.emulate.forms import F64, U64, Bits, Operation
from rglink.emulate.softfloat import FORMATS, settle

_HIGH_WORD = np.uint64(0xFFFFFFFF00000000)
_CANONICAL = np.uint64(0x7FFFFFFF00000000)
_SIGN = np.uint64(1 << 63)


def _approximate_quotient(a: Bits, b: Bits) -> Bits:
    """div.approx multiplies by the reciprocal, which is zero for |b| above 2**126."""
    size = np.abs(b)
    inverse = np.where((size > 2.0**126) & (size < np.inf), np.copysign(0.0, b), 1.0 / b)
    return np.where(inverse == 0, a * inverse, a / b)


def _gross(root: bool) -> Operation:
    """rcp and rsqrt .approx.ftz.f64: the high words of operand and result alone count."""

    def inverse(bits: Bits) -> Bits:
        word = bits & _HIGH_WORD
        # An operand whose high word is subnormal counts as zero.
        word = np.where((word & ~_SIGN) < np.uint64(1 << 52), word & _SIGN, word)
        number = word.view(F64)
        result = 1.0 / (np.sqrt(number) if root else number)
        raw = result.view(U64) & _HIGH_WORD
        raw = np.where((raw & ~_SIGN) < np.uint64(1 << 52), raw & _SIGN, raw)
        return np.where(result != result, _CANONICAL, raw)

    return inverse


def _inverse_root64(bits: Bits) -> Bits:
    return settle(FORMATS["f64"], 1.0 / np.sqrt(bits.view(F64)), bits)


# By opcode, mode, "f64" (then on bits, not numbers) or "", and "ftz" where that changes an f64 instruction.
APPROXIMATE: Mapping[tuple[str, str, str, str], Operation] = {
    ("div", "approx", "", ""): _approximate_quotient,
    ("div", "full", "", ""): np.divide,
    ("rcp", "approx", "", ""): np.reciprocal,
    ("sqrt", "approx", "", ""): np.sqrt,
    ("rsqrt", "approx", "", ""): lambda a: 1.0 / np.sqrt(a),
    ("sin", "approx", "", ""): np.sin,
    ("cos", "approx", "", ""): np.cos,
    ("lg2", "approx", "", ""): np.log2,
    ("ex2", "approx", "", ""): np.exp2,
    ("tanh", "approx", "", ""): np.tanh,
    ("rcp", "approx", "f64", "ftz"): _gross(root=False),
    ("rsqrt", "approx", "f64", "ftz"): _gross(root=True),
    ("rsqrt", "approx", "f64", ""): _inverse_root64,
}
