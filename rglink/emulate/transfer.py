"""How arguments get from the cells of a caller to those of a callee, and results back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rglink.emulate.errors import Unsupported
from rglink.emulate.frames import Active, Vector
from rglink.emulate.ptx import TYPE_SIZES, FloatImmediate, Immediate, Operand, Register, Sink, Symbol
from rglink.emulate.slots import Cells, SlotTable, cell_reader

# (slot of the callee or caller, how its value is read from the other side)
Moves = list[tuple[int, Callable[[Active], Vector]]]


@dataclass(frozen=True)
class Argument:
    """What one position of a call's list holds: places of its bytes."""

    cells: Cells


def argument_of(table: SlotTable, operand: Operand, is_input: bool) -> Argument:
    """The cells behind an argument or, with `is_input` False, behind the receiver of a result.

    Raises:
        Unsupported: an operand that cannot be passed.
    """
    if isinstance(operand, Symbol) and operand.name in table.cells and not operand.offset:
        cells = table.cells[operand.name]
        for slot in cells.values():
            if is_input:
                table.flow.reads |= 1 << slot
            else:
                table.flow.kills |= 1 << slot
        return Argument(cells)
    if isinstance(operand, Register):
        size = TYPE_SIZES.get(operand.type, 1)
        slot = table.source(operand, operand.type) if is_input else table.destination(operand, operand.type)
        return Argument({(0, size): slot})
    if isinstance(operand, Sink):
        return Argument({})
    if is_input and isinstance(operand, Immediate | FloatImmediate | Symbol):
        width = operand.width if isinstance(operand, FloatImmediate) else 64
        slot = table.source(operand, f"b{width}")
        return Argument({(0, width // 8): slot})
    raise Unsupported(f"an argument of the form {type(operand).__name__}")


def moves_between(given: Sequence[Argument], wanted: Sequence[Cells]) -> Moves:
    """For each wanted cell the function that reads it from what is given; cells that nobody gives stay as they are.

    Raises:
        Unsupported: another number of values than wanted.
    """
    if len(given) != len(wanted):
        raise Unsupported(f"a call that passes {len(given)} values where {len(wanted)} are taken")
    moves: Moves = []
    for argument, cells in zip(given, wanted, strict=True):
        for (offset, size), slot in cells.items():
            read, reads = cell_reader(argument.cells, offset, size)
            if reads:
                moves.append((slot, read))
    return moves
