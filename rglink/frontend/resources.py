"""`--print-resources`: what each kernel takes on each architecture, read from the machine code itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from rglink.demangle import demangle
from rglink.objfmt.cubin import Cubin, CubinKernel

_COLUMNS = ("kernel", "arch", "registers", "shared", "constant", "stack", "spills", "code")

_UNKNOWN_STACK = 0xFFFFFFFF  # ptxas' word for it


@dataclass(frozen=True)
class ResourceRow:
    """One kernel on one architecture; sizes in bytes, `spills` counts spill instructions.

    `stack` is None when it cannot be known: recursion, or calls through pointers.
    """

    kernel: str
    arch: str
    registers: int
    shared: int
    constant: int
    stack: int | None
    spills: int
    code: int


def resource_rows(cubins: Sequence[tuple[str, Cubin]]) -> list[ResourceRow]:
    """Rows sorted by kernel, then in the order of the (architecture name, cubin) pairs."""
    rows = [(kernel.name, order, _row(arch, kernel)) for order, (arch, cubin) in enumerate(cubins)
            for kernel in cubin.kernels]  # fmt: skip
    return [row for _, _, row in sorted(rows, key=lambda entry: entry[:2])]


def _row(arch: str, kernel: CubinKernel) -> ResourceRow:
    # min_stack covers the deepest chain of calls; the frame alone is what a kernel without calls needs.
    stack = None if kernel.min_stack == _UNKNOWN_STACK else max(kernel.frame, kernel.min_stack)
    return ResourceRow(
        kernel.name, arch, kernel.registers, kernel.shared, kernel.constant, stack, kernel.spills, kernel.code
    )


def render_table(rows: Sequence[ResourceRow]) -> str:
    """Text columns, numbers to the right; a kernel's name once."""
    lines: list[tuple[str, ...]] = [_COLUMNS]
    previous = ""
    for row in rows:
        name = "" if row.kernel == previous else demangle(row.kernel)
        previous = row.kernel
        numbers = (row.registers, row.shared, row.constant, row.stack, row.spills, row.code)
        lines.append((name, row.arch, *("unknown" if number is None else str(number) for number in numbers)))
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def render_json(rows: Sequence[ResourceRow]) -> str:
    """A JSON array with one object a row, keys as in `ResourceRow` plus the demangled `name`."""
    return json.dumps([{**vars(row), "name": demangle(row.kernel)} for row in rows], indent=1)
