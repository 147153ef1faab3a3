"""What the PTX machine says when it cannot go on."""

from __future__ import annotations

from rglink.diagnostics import InputError, RglinkError, UsageError
from rglink.emulate.ptx import Instruction


class Unsupported(Exception):
    """An instruction, modifier or directive that the machine does not know; the text names it.

    Raised by the arithmetic modules without a place; the decoder adds line and kernel and makes it an `InputError`.
    """


class KernelFault(RglinkError):
    """A kernel did at run time what ends a launch: a trap, a failed assertion, a wild address, a deadlock.

    `kernel` is the symbol; `instruction` the one concerned, or None; `line` its line of the PTX, 0 if there is none;
    `source` ("src/lib.rs", 12) or None; `block` and `thread` are (x, y, z) of the first lane concerned, None where no
    lane is to blame. `waiting` tells of threads that wait, and where. `output` is what the kernel had printed.
    """

    default_slug = "kernel-fault"

    def __init__(
        self,
        message: str,
        *places: str,
        kernel: str = "",
        instruction: Instruction | None = None,
        block: tuple[int, int, int] | None = None,
        thread: tuple[int, int, int] | None = None,
        slug: str | None = None,
        waiting: tuple[tuple[str, Instruction], ...] = (),
    ) -> None:
        super().__init__(message, *places, slug=slug)
        self.kernel, self.instruction, self.block, self.thread = kernel, instruction, block, thread
        self.line = 0 if instruction is None else instruction.line
        self.source = None if instruction is None else instruction.loc
        self.waiting, self.output = waiting, ""


class PtxError(InputError):
    """PTX text that cannot be read, or holds what the machine does not know."""

    default_slug = "bad-ptx"


class LaunchError(UsageError):
    """A launch that does not fit the kernel: its arguments, grid or block."""

    default_slug = "bad-launch"
