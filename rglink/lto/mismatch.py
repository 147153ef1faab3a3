"""Sizes of LLVM types, for comparing what one module declares with what another defines."""

from __future__ import annotations

import re

from rglink.irtext import split_commas

_SCALAR = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "fp128": 16, "void": 0}


def size_of(text: str) -> int | None:
    """Bytes that a type takes in a global with NVIDIA's data layout, None when unknown (named or target types)."""
    found = _layout(text)
    return found[0] if found else None


def _layout(text: str) -> tuple[int, int] | None:
    """(size, alignment) in bytes."""
    if text in _SCALAR:
        return _SCALAR[text], max(_SCALAR[text], 1)
    integer = re.fullmatch(r"i(\d+)", text)
    if integer:
        bytes_ = (int(integer[1]) + 7) // 8
        alignment = min(1 << (bytes_ - 1).bit_length(), 16)
        return _round_up(bytes_, alignment), alignment
    if text.startswith("ptr"):
        return 8, 8
    array = re.fullmatch(r"\[(\d+) x (.*)\]", text)
    if array:
        element = _layout(array[2])
        return (int(array[1]) * element[0], element[1]) if element else None
    vector = re.fullmatch(r"<(\d+) x (.*)>", text)
    if vector:
        element = _layout(vector[2])
        if element is None:
            return None
        size = 1 << max(int(vector[1]) * element[0] - 1, 0).bit_length()
        return size, size
    if text.startswith(("{", "<{")):
        return _struct(text)
    return None


def _struct(text: str) -> tuple[int, int] | None:
    packed = text.startswith("<{")
    inner = text[2:-2] if packed else text[1:-1]
    size, largest = 0, 1
    for part in split_commas(inner.strip()):
        field = _layout(part)
        if field is None:
            return None
        alignment = 1 if packed else field[1]
        size = _round_up(size, alignment) + field[0]
        largest = max(largest, alignment)
    return _round_up(size, largest), largest


def _round_up(size: int, alignment: int) -> int:
    return (size + alignment - 1) // alignment * alignment
