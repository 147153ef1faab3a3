"""What the arithmetic modules share: reading an opcode's dot parts, PTX types as NumPy types, packed operands.

Operands and results everywhere are bit patterns: unsigned arrays of the type's width (bool for predicates), one
element a lane, or NumPy scalars for immediates; packed types (f16x2, s16x2, f32x2) are one unsigned of twice the width.
The functions that `resolve` returns do no checks and must run under `numpy.errstate(all="ignore")`: entering that
state costs more than an addition, so the caller enters it once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from rglink.emulate.errors import Unsupported

# An array or a NumPy scalar: what NumPy's stubs have no arithmetic for.
Bits = Any
Modifiers = tuple[str, ...]
Operation = Callable[..., Any]
Builder = Callable[[Modifiers], Operation]

WIDTHS = (8, 16, 32, 64)
# The unsigned type that holds the bits, and the type that gives them their value: both by PTX type.
BITS: Mapping[str, np.dtype[Any]] = {f"{k}{w}": np.dtype(f"u{w // 8}") for k in "usb" for w in WIDTHS}
VALUE: Mapping[str, np.dtype[Any]] = {**BITS, **{f"s{w}": np.dtype(f"i{w // 8}") for w in WIDTHS}}
U8, U16, U32, U64 = (np.dtype(f"u{w // 8}") for w in WIDTHS)
I8, I16, I32, I64 = (np.dtype(f"i{w // 8}") for w in WIDTHS)
F16, F32, F64 = np.dtype("f2"), np.dtype("f4"), np.dtype("f8")
DOUBLE: Mapping[np.dtype[Any], np.dtype[Any]] = {U8: U16, U16: U32, U32: U64, I8: I16, I16: I32, I32: I64}


def take(name: str, modifiers: Modifiers, *groups: Collection[str]) -> tuple[str, ...]:
    """The modifier chosen from each group, in the order of the groups; "" where a group that holds "" has none.

    Every modifier goes to the first unfilled group that knows it. Raises `Unsupported` for one that none knows and for
    a group without choice.
    """
    chosen: list[str | None] = [None] * len(groups)
    for part in modifiers:
        place = next((i for i, group in enumerate(groups) if chosen[i] is None and part and part in group), None)
        if place is None:
            raise Unsupported(f"{spell(name, modifiers)}: .{part} is not supported")
        chosen[place] = part
    for i, group in enumerate(groups):
        if chosen[i] is None and "" not in group:
            raise Unsupported(f"{spell(name, modifiers)}: lacks one of {', '.join('.' + g for g in sorted(group))}")
    return tuple(part or "" for part in chosen)


def spell(name: str, modifiers: Modifiers) -> str:
    """The opcode as PTX writes it: add.rn.f32."""
    return ".".join((name, *modifiers))


def packed(bits: Bits, half: np.dtype[Any]) -> Bits:
    """The parts of packed operands, low part first: shape [...] becomes [..., parts]."""
    return np.ascontiguousarray(bits)[..., None].view(half) if np.ndim(bits) else np.asarray([bits]).view(half)


def unpacked(parts: Bits, whole: np.dtype[Any]) -> Bits:
    """The inverse of `packed`."""
    return np.ascontiguousarray(parts).view(whole)[..., 0]


def by_parts(operation: Operation, half: np.dtype[Any], whole: np.dtype[Any]) -> Operation:
    """The same operation on each part of packed operands."""

    def apply(*operands: Bits) -> Bits:
        return unpacked(operation(*(packed(x, half) for x in operands)), whole)

    return apply


def operations(builders: Mapping[str, Builder]) -> Mapping[str, Operation]:
    """The plain interface: by opcode name a function (modifiers, *operands) that resolves and runs."""

    def plain(builder: Builder) -> Operation:
        build = lru_cache(maxsize=None)(builder)

        def run(modifiers: Modifiers, *operands: Bits) -> Any:
            with np.errstate(all="ignore"):
                return build(tuple(modifiers))(*operands)

        return run

    return {name: plain(builder) for name, builder in builders.items()}
