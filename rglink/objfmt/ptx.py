"""The head of a PTX module and the kernels that it defines, without a parse of its code.

Source: PTX ISA, "Directives": `.version`, `.target`, `.address_size`, `.entry`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rglink.diagnostics import InputError

SKIPPED = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\]|\\.)*"', re.DOTALL)  # comments and strings
VERSION = re.compile(r"\s*\.version\s+(\d+)\.(\d+)")
TARGET = re.compile(r"\.target\s+sm_(\d+)([af]?)\b")
ENTRY = re.compile(r"\.entry\s+([A-Za-z_$%][\w$]*)", re.ASCII)


@dataclass(frozen=True)
class Ptx:
    """`version` is (7, 8) for `.version 7.8`; `sm` and `suffix` are those of `.target sm_90a`; `kernels` sorted."""

    name: str
    version: tuple[int, int]
    sm: int
    suffix: str
    kernels: tuple[str, ...]

    @property
    def arch(self) -> str:
        return f"compute_{self.sm}{self.suffix}"


def read_ptx(name: str, data: bytes | memoryview) -> Ptx:
    """Read a PTX module; a NUL at its end, as libNVVM writes it, does not count.

    Raises:
        InputError: not UTF-8, or without `.version` or `.target`.
    """
    try:
        text = bytes(data).rstrip(b"\0").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{name}: is not PTX: not UTF-8 text") from None
    code = SKIPPED.sub(" ", text)
    version, target = VERSION.match(code), TARGET.search(code)
    if version is None or target is None:
        raise InputError(f"{name}: is not PTX: no {'.version' if version is None else '.target'} directive")
    kernels = tuple(sorted(set(ENTRY.findall(code))))
    return Ptx(name, (int(version[1]), int(version[2])), int(target[1]), target[2], kernels)
