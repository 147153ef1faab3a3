"""What counts as a collective: an operation that several threads of a warp or block perform together.

Names after LLVM 22's `IntrinsicsNVVM.td` and the PTX ISA manual ("Parallel Synchronization and Communication
Instructions", "Warp Level Matrix Instructions", "Asynchronous Warpgroup Level Matrix Instructions").
"""

from __future__ import annotations

import re

_INTRINSIC = re.compile(
    r"llvm\.nvvm\.(?:barrier0?|bar|shfl|vote|match|redux|elect|mma|wmma|wgmma|ldmatrix|stmatrix|tcgen05"
    r"|setmaxnreg)\."
    r"|llvm\.nvvm\.barrier0\Z|llvm\.nvvm\.barrier\.sync\Z"
)
_INSTRUCTION = re.compile(
    r"(?:\b(?:bar|barrier|shfl|vote|match|redux|elect|mma|wmma|wgmma|ldmatrix|stmatrix|tcgen05|setmaxnreg)\.)"
    r"|\.sync\b|\.aligned\b"
)


def is_collective_intrinsic(name: str) -> bool:
    """Whether a function of LLVM's is performed by several threads together."""
    return _INTRINSIC.match(name) is not None


def collective_in_asm(assembly: str) -> str | None:
    """The first PTX instruction of an asm template that is a collective, without operands; None when none is."""
    for statement in re.split(r"[;{}\n]|\\0A|\\09", assembly):
        found = _INSTRUCTION.search(statement)
        if found:
            words = statement.split()
            return next((word for word in words if "." in word), statement.strip())
    return None
