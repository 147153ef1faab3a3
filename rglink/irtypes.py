"""Sizes and alignments of LLVM types as the NVPTX back end lays them out.

The data layout is that of LLVM 22's NVPTXTargetMachine.cpp for 64 bits; rules after LangRef, "Data Layout".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rglink.irtext import ModuleText, skip_type, split_commas, unquote

# Bytes of size and alignment. i128 and larger are aligned as the layout says (`i128:128-i256:256`).
_SCALARS = {"half": (2, 2), "bfloat": (2, 2), "float": (4, 4), "double": (8, 8), "fp128": (16, 16)}
_INTEGER_ALIGNMENTS = ((8, 1), (16, 2), (32, 4), (64, 8), (128, 16), (256, 32))  # bits, bytes
_ARRAY = re.compile(r"\[(\d+) x (.*)\]\Z", re.DOTALL)
_VECTOR = re.compile(r"<(\d+) x (.*)>\Z", re.DOTALL)


@dataclass(frozen=True)
class Layout:
    """`size` is the distance between two elements of an array, `align` the ABI alignment, both in bytes."""

    size: int
    align: int


def named_types(text: ModuleText) -> dict[str, str]:
    """The bodies of the module's `%name = type ...`, by name without `%`."""
    types: dict[str, str] = {}
    for item in text.of_kind("type"):
        token, _, body = item.head.partition(" = type ")
        types[unquote(token)] = body
    return types


def layout_of(type_: str, types: Mapping[str, str]) -> Layout:
    """Size and alignment of a sized type.

    Raises:
        ValueError: the type has no size (opaque, void, a target's own type).
    """
    if type_ in _SCALARS:
        return Layout(*_SCALARS[type_])
    if type_.startswith("ptr"):
        return Layout(4, 4) if type_ == "ptr addrspace(6)" else Layout(8, 8)
    if re.fullmatch(r"i\d+", type_):
        return _integer(int(type_[1:]))
    if match := _ARRAY.match(type_):
        element = layout_of(match[2].strip(), types)
        return Layout(int(match[1]) * element.size, element.align)
    if type_.startswith("<{"):
        return _struct(type_[2:-2], types, packed=True)
    if type_.startswith("{"):
        return _struct(type_[1:-1], types, packed=False)
    if match := _VECTOR.match(type_):
        return _vector(int(match[1]), match[2].strip(), types)
    body = types.get(unquote(type_), "opaque") if type_.startswith("%") else "opaque"
    if body == "opaque":
        raise ValueError(f"type {type_} has no size")
    return layout_of(body, types)


def _integer(bits: int) -> Layout:
    align = next((bytes_ for width, bytes_ in _INTEGER_ALIGNMENTS if bits <= width), _INTEGER_ALIGNMENTS[-1][1])
    return Layout(align_up((bits + 7) // 8, align), align)


def _vector(count: int, element: str, types: Mapping[str, str]) -> Layout:
    bits = int(element[1:]) if re.fullmatch(r"i\d+", element) else 8 * layout_of(element, types).size
    size = (count * bits + 7) // 8
    align = 1 << max(size - 1, 0).bit_length()
    return Layout(align_up(size, align), align)


def _struct(fields: str, types: Mapping[str, str], packed: bool) -> Layout:
    offset, largest = 0, 1
    for field in split_commas(fields.strip()):
        layout = layout_of(field[: skip_type(field, 0)], types)
        align = 1 if packed else layout.align
        offset = align_up(offset, align) + layout.size
        largest = max(largest, align)
    return Layout(align_up(offset, largest), largest)


def align_up(offset: int, align: int) -> int:
    """The next multiple of `align`."""
    return -(-offset // align) * align
