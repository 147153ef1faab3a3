"""Functions that the driver provides: vprintf, malloc, free, __assertfail.

Source: CUDA C++ Programming Guide, "Formatted Output", "Dynamic Global Memory Allocation", "Assertion".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence

import numpy as np

from rglink.emulate.code import Control
from rglink.emulate.errors import Unsupported
from rglink.emulate.frames import Active, Group, Vector
from rglink.emulate.memory import BadAccess
from rglink.emulate.ptx import Instruction
from rglink.emulate.slots import SlotTable, cell_reader
from rglink.emulate.transfer import Argument

DIRECTIVE = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d*)(?:\.(?P<precision>\*|\d*))?"
    r"(?P<length>hh|h|ll|l|z|j|t)?(?P<kind>[diouxXcsaAeEfFgGp%])"
)
Values = list[Vector]


def decode_system_call(
    table: SlotTable,
    instruction: Instruction,
    name: str,
    arguments: Sequence[Argument],
    results: Sequence[Argument],
    at: int,
) -> Control:
    """A call of a function that only the system can provide.

    Raises:
        Unsupported: one that it does not.
    """
    known = FUNCTIONS.get(name)
    if known is None:
        raise Unsupported(f"call of {name}, which the program does not define")
    run, sizes, result_size = known
    if len(arguments) != len(sizes):
        raise Unsupported(f"call of {name} with {len(arguments)} arguments")
    reads = [cell_reader(a.cells, 0, size)[0] for a, size in zip(arguments, sizes, strict=True)]
    target = results[0].cells.get((0, result_size)) if results and result_size else None

    def call(group: Group) -> bool:
        values = [np.broadcast_to(read(group), (group.count,)) for read in reads]
        result = run(group, values, instruction)
        if target is not None and result is not None:
            group.registers[target] = result
        group.pc = at + 1
        return True

    return call


def _malloc(group: Active, values: Values, instruction: Instruction) -> Vector:
    arena, observer = group.wave.arena, group.wave.observer
    found = np.zeros(group.count, np.uint64)
    for lane, size in enumerate(values[0].tolist()):
        if size == 0 or arena.heap_bytes + size > group.wave.heap_limit:
            continue  # malloc returns null
        found[lane] = arena.allocate("heap block", "heap", size, 16)
        arena.heap_bytes += size
        if observer is not None:
            observer.on_heap(group.subset(np.array([lane]), ()), int(found[lane]), size, False)
    return found


def _free(group: Active, values: Values, instruction: Instruction) -> None:
    arena, observer = group.wave.arena, group.wave.observer
    for lane, address in enumerate(values[0].tolist()):
        if address == 0:
            continue
        block = arena.find(address)
        if block is None or block.start != address or block.kind != "heap" or block.freed:
            twice = block is not None and block.start == address and block.freed
            text = f"free of 0x{address:x}, which {'was freed before' if twice else 'malloc did not return'}"
            group.wave.fault(text, group, lane, instruction, "bad-free")
        block.freed = True
        arena.heap_bytes -= block.size
        if observer is not None:
            observer.on_heap(group.subset(np.array([lane]), ()), address, block.size, True)


def _assertfail(group: Active, values: Values, instruction: Instruction) -> None:
    arena = group.wave.arena
    message, file, function = (arena.text(int(values[at][0])) for at in (0, 1, 3))
    text = f"assertion `{message}` failed at {file}:{int(values[2][0])}, in {function}"
    group.wave.fault(text, group, 0, instruction, "assertion")


def _vprintf(group: Active, values: Values, instruction: Instruction) -> Vector:
    found = np.zeros(group.count, np.uint32)
    for lane in range(group.count):
        template = group.wave.arena.text(int(values[0][lane]))
        active = group.subset(np.array([lane]), ())
        try:
            text, count = formatted(active, template, int(values[1][lane]))
        except BadAccess as bad:
            group.wave.fault(bad.text, group, lane, instruction, bad.slug)
        group.wave.output.append(text)
        found[lane] = count
    return found


class ArgumentList:
    """The arguments of vprintf in memory: each is aligned to its size; floats are doubles."""

    def __init__(self, active: Active, address: int) -> None:
        self.active, self.address, self.offset = active, address, 0

    def bits(self, size: int) -> int:
        """The next value of `size` bytes."""
        self.offset = -(-self.offset // size) * size
        place = np.array([self.address + self.offset], np.uint64)
        self.offset += size
        return int(self.active.wave.spaces.load("generic", self.active, place, size)[0])

    def integer(self, size: int, signed: bool) -> int:
        value = self.bits(size)
        return value - (1 << 8 * size) if signed and value >> (8 * size - 1) else value


def formatted(active: Active, template: str, address: int) -> tuple[str, int]:
    """The text that printf makes of a template and the arguments at `address`, and their number."""
    arguments = ArgumentList(active, address)
    count = 0

    def one(match: re.Match[str]) -> str:
        nonlocal count
        kind = match["kind"]
        if kind == "%":
            return "%"
        width, precision = match["width"], match["precision"]
        if width == "*":
            width = str(arguments.integer(4, True))
        if precision == "*":
            precision = str(arguments.integer(4, True))
        count += 1
        form = f"%{match['flags']}{width}" + ("" if precision is None else f".{precision}")
        return _one_argument(active, arguments, form, kind, match["length"] or "")

    return DIRECTIVE.sub(one, template), count


def _one_argument(active: Active, arguments: ArgumentList, form: str, kind: str, length: str) -> str:
    size = 8 if length in ("l", "ll", "z", "j", "t") else 4
    if kind in "di":
        return (form + "d") % arguments.integer(size, True)
    if kind in "ouxX":
        return (form + ("d" if kind == "u" else kind)) % arguments.integer(size, False)
    if kind == "c":
        return (form + "s") % chr(arguments.bits(4) & 0xFF)
    if kind == "p":
        return (form + "s") % f"0x{arguments.bits(8):x}"
    if kind == "s":
        return (form + "s") % active.wave.arena.text(arguments.bits(8))
    number = struct.unpack("<d", arguments.bits(8).to_bytes(8, "little"))[0]
    if kind in "aA":
        text = float(number).hex()
        return (form.split(".")[0] + "s") % (text.upper() if kind == "A" else text)
    return str((form + kind) % number)


SystemFunction = Callable[[Active, Values, Instruction], Vector | None]
# name -> what it does, the sizes of its arguments, the size of its result
FUNCTIONS: dict[str, tuple[SystemFunction, tuple[int, ...], int]] = {
    "malloc": (_malloc, (8,), 8),
    "free": (_free, (8,), 0),
    "vprintf": (_vprintf, (8, 8), 4),
    "__assertfail": (_assertfail, (8, 8, 4, 8, 8), 0),
}
