"""The header of NVIDIA's LTO-IR: which LLVM it is made of and for which architecture.

Source: bytes observed on libNVVM 13.5's `-gen-lto` output; NVIDIA documents none of it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from rglink.diagnostics import InputError

MAGIC = b"\xedCN\x7f"
HEADER = struct.Struct("<4s6xB15xH")  # magic, LLVM major version, architecture times 10


@dataclass(frozen=True)
class LtoIr:
    """`sm` is the architecture that the IR was made for (75 for compute_75), `llvm_major` the LLVM inside the libNVVM
    that made it: 23 in libNVVM 13.5, whatever LLVM made the IR that went in."""

    name: str
    sm: int
    llvm_major: int


def read_ltoir(name: str, data: bytes | memoryview) -> LtoIr:
    """Read the header.

    Raises:
        InputError: not LTO-IR, or shorter than its header.
    """
    view = memoryview(data)
    if view[:4] != MAGIC:
        raise InputError(f"{name}: is not LTO-IR")
    if len(view) < HEADER.size:
        raise InputError(f"{name}: LTO-IR header is truncated: {len(view)} bytes, wanted {HEADER.size}")
    _, llvm_major, arch = HEADER.unpack_from(view)
    return LtoIr(name, arch // 10, llvm_major)
