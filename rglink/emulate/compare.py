"""Comparison and selection instructions of PTX: setp, set, selp, slct.

Semantics: PTX ISA 9.x, "Comparison and Selection Instructions" and "Half Precision Comparison Instructions".
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rglink.emulate.errors import Unsupported
from rglink.emulate.forms import (
    BITS,
    F32,
    I32,
    U16,
    U32,
    VALUE,
    Bits,
    Builder,
    Modifiers,
    Operation,
    operations,
    packed,
    spell,
    take,
    unpacked,
)
from rglink.emulate.softfloat import FORMATS, NUMBERS, flush, from_bf16

_PACKED = {"f16x2": "f16", "bf16x2": "bf16"}
_SCALARS = ("f16", "bf16", "f32", "f64")
_INTEGERS = tuple(f"{k}{w}" for k in "usb" for w in (16, 32, 64))
_BOOLEAN: Mapping[str, np.ufunc] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
_PLAIN: Mapping[str, np.ufunc] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_UNSIGNED: Mapping[str, np.ufunc] = {"lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}
_FLOAT: Mapping[str, Operation] = {
    **_PLAIN,
    # PTX's ne is false where there is a NaN, Python's is true.
    "ne": lambda x, y: (x < y) | (x > y),
    "equ": lambda x, y: ~((x < y) | (x > y)),
    "neu": np.not_equal,
    "ltu": lambda x, y: ~(x >= y),
    "leu": lambda x, y: ~(x > y),
    "gtu": lambda x, y: ~(x <= y),
    "geu": lambda x, y: ~(x < y),
    "num": lambda x, y: (x == x) & (y == y),
    "nan": lambda x, y: (x != x) | (y != y),
}
COMPARISONS = (*_FLOAT, *_UNSIGNED)


def comparison(operator: str, kind: str, ftz: bool = False) -> Operation:
    """The comparison as a function of two patterns of the type (f16x2 and bf16x2 not among them), giving bool.

    Raises `Unsupported` for an operator that the type does not have.
    """
    if kind in BITS:
        if kind[0] == "b" and operator not in ("eq", "ne"):
            raise Unsupported(f"comparison .{operator} of .{kind}")
        if operator in _PLAIN and kind[0] != "s":
            return _PLAIN[operator]
        if operator in _UNSIGNED and kind[0] == "u":
            return _UNSIGNED[operator]
        if operator in _PLAIN:
            ufunc, value = _PLAIN[operator], VALUE[kind]
            return lambda a, b: ufunc(a.view(value), b.view(value))
    elif operator in _FLOAT and kind in _SCALARS:
        return _float_comparison(_FLOAT[operator], kind, ftz)
    raise Unsupported(f"comparison .{operator} of .{kind}")


def _float_comparison(test: Operation, kind: str, ftz: bool) -> Operation:
    form = FORMATS[kind]
    if kind == "bf16":
        return lambda a, b: test(from_bf16(a), from_bf16(b))
    view = NUMBERS[kind]
    if ftz:
        return lambda a, b: test(flush(form, a).view(view), flush(form, b).view(view))
    return lambda a, b: test(a.view(view), b.view(view))


def compare(operator: str, kind: str, a: Bits, b: Bits) -> Bits:
    """Whether a stands in the relation to b: operator as in setp (lt, hs, geu, num, ...), patterns of the type."""
    with np.errstate(all="ignore"):
        result: Bits = comparison(operator, kind)(a, b)
        return result


def _checked(name: str, modifiers: Modifiers, ftz: str, kind: str) -> None:
    if ftz and kind not in ("f32", "f16", "f16x2"):
        raise Unsupported(f"{spell(name, modifiers)}: .ftz is for f32 and f16")


def _setp(modifiers: Modifiers) -> Operation:
    """(a, b) or with a boolean operator (a, b, c) to the first predicate; both halves' for packed types."""
    operator, combine, ftz, kind = take(
        "setp", modifiers, COMPARISONS, ("", *_BOOLEAN), ("", "ftz"), (*_INTEGERS, *_SCALARS, *_PACKED)
    )
    _checked("setp", modifiers, ftz, kind)
    test = comparison(operator, _PACKED.get(kind, kind), bool(ftz))
    merge = _BOOLEAN.get(combine)
    if kind in _PACKED:

        def halves(a: Bits, b: Bits, *c: Bits) -> tuple[Bits, Bits]:
            both = test(packed(a, U16), packed(b, U16))
            low, high = both[..., 0], both[..., 1]
            return (merge(low, c[0]), merge(high, c[0])) if merge else (low, high)

        return halves
    if merge is None:
        return test
    return lambda a, b, c: merge(test(a, b), c)


def _setp_pair(modifiers: Modifiers) -> Operation:
    """As setp, to both predicates of `setp p|q`: the second is that of the negated comparison."""
    operator, combine, ftz, kind = take(
        "setp", modifiers, COMPARISONS, ("", *_BOOLEAN), ("", "ftz"), (*_INTEGERS, *_SCALARS)
    )
    _checked("setp", modifiers, ftz, kind)
    test, merge = comparison(operator, kind, bool(ftz)), _BOOLEAN.get(combine)

    def pair(a: Bits, b: Bits, *c: Bits) -> tuple[Bits, Bits]:
        holds = test(a, b)
        return (merge(holds, c[0]), merge(~holds, c[0])) if merge else (holds, ~holds)

    return pair


_TRUE: Mapping[str, np.generic] = {
    "u32": np.uint32(0xFFFFFFFF),
    "s32": np.uint32(0xFFFFFFFF),
    "u16": np.uint16(0xFFFF),
    "s16": np.uint16(0xFFFF),
    "f32": np.uint32(0x3F800000),
    "f16": np.uint16(0x3C00),
    "bf16": np.uint16(0x3F80),
    "f16x2": np.uint16(0x3C00),
    "bf16x2": np.uint16(0x3F80),
}


_SCALAR_RESULTS = tuple(result for result in _TRUE if result not in _PACKED)


def _set(modifiers: Modifiers) -> Operation:
    kinds = (*_INTEGERS, *_SCALARS, *_PACKED)
    operator, combine, ftz, result, kind = take(
        "set", modifiers, COMPARISONS, ("", *_BOOLEAN), ("", "ftz"), tuple(_TRUE), kinds
    )
    _checked("set", modifiers, ftz, kind)
    possible = (kind, "u32", "s32") if kind in _PACKED else _SCALAR_RESULTS
    if result not in possible:
        raise Unsupported(f"{spell('set', modifiers)}: .{result} from .{kind}")
    test, merge = comparison(operator, _PACKED.get(kind, kind), bool(ftz)), _BOOLEAN.get(combine)
    # An integer result of packed operands is two masks of 16 bits.
    true = _TRUE["u16" if kind in _PACKED and result not in _PACKED else result]
    false = true.dtype.type(0)

    def scalar(a: Bits, b: Bits, *c: Bits) -> Bits:
        holds = test(a, b)
        return np.where(merge(holds, c[0]) if merge else holds, true, false)

    def halves(a: Bits, b: Bits, *c: Bits) -> Bits:
        return unpacked(scalar(packed(a, U16), packed(b, U16), *(x[..., None] for x in c)), U32)

    return halves if kind in _PACKED else scalar


def _selp(modifiers: Modifiers) -> Operation:
    take("selp", modifiers, (*_INTEGERS, "f32", "f64"))
    return lambda a, b, p: np.where(p, a, b)


def _slct(modifiers: Modifiers) -> Operation:
    ftz, _kind, selector = take("slct", modifiers, ("", "ftz"), (*_INTEGERS, "f32", "f64"), ("s32", "f32"))
    if ftz and selector != "f32":
        raise Unsupported(f"{spell('slct', modifiers)}: .ftz is for a selector in f32")
    # A flushed subnormal is zero of either sign, and -0 >= 0: the smallest magnitudes select a.
    view = F32 if selector == "f32" else I32
    form = FORMATS["f32"]
    return lambda a, b, c: np.where((flush(form, c) if ftz else c).view(view) >= 0, a, b)


BUILDERS: dict[str, Builder] = {
    "setp": _setp,
    "setp_pair": _setp_pair,
    "set": _set,
    "selp": _selp,
    "slct": _slct,
}
OPERATIONS = operations(BUILDERS)
