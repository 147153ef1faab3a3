"""Loads and stores to steps.

Source: PTX ISA, "Data Movement and Conversion Instructions": ld, ldu, st, prefetch. Cache operators, eviction
priorities and prefetch sizes change no value.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rglink.emulate.code import Step
from rglink.emulate.errors import Unsupported
from rglink.emulate.frames import Active, Vector
from rglink.emulate.memory import UNSIGNED, BadAccess
from rglink.emulate.ptx import TYPE_SIZES, Address, Instruction, Operand, Register, Symbol
from rglink.emulate.ptx import Vector as VectorOperand
from rglink.emulate.slots import WIDE, SlotTable, cell_reader, is_param_space

SPACES = frozenset(("global", "shared", "local", "const", "param"))
ORDERS = frozenset(("weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "sc", "mmio"))
SCOPES = frozenset(("cta", "cluster", "gpu", "sys"))
CACHE_HINTS = frozenset(("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "unified"))
VECTORS = {"v2": 2, "v4": 4, "v8": 8}
# Reads that may wait for another thread: a loop of such reads lets others run.
WAITING = frozenset(("volatile", "relaxed", "acquire", "mmio"))


def split_opcode(opcode: tuple[str, ...]) -> tuple[str, int, frozenset[str]]:
    """(space, number of elements, order and scope) of a load or store; the type is the last dot part.

    Raises:
        Unsupported: a dot part that is not known.
    """
    space, count, words = "generic", 1, set[str]()
    for part in opcode[1:-1]:
        base = part.split("::")[0]
        if base in SPACES:
            space = base
        elif part in VECTORS:
            count = VECTORS[part]
        elif part in ORDERS or part in SCOPES:
            words.add(part)
        elif part not in CACHE_HINTS and base not in ("L1", "L2"):
            raise Unsupported(f"instruction {'.'.join(opcode)}: .{part}")
    if opcode[-1] not in TYPE_SIZES:
        raise Unsupported(f"instruction {'.'.join(opcode)}")
    return space, count, frozenset(words)


def address_of(table: SlotTable, operand: Operand) -> int:
    """The slot that holds a 64-bit address.

    Raises:
        Unsupported: not an address, or that of a function's parameter.
    """
    if not isinstance(operand, Address):
        raise Unsupported("an operand that is no address")
    if operand.base is None:
        return table.constant(operand.offset, np.dtype(np.uint64))
    if isinstance(operand.base, Symbol):
        return table.source(Symbol(operand.base.name, operand.base.offset + operand.offset), "u64")
    slot = table.source(operand.base, "u64")
    if not operand.offset:
        return slot
    offset = np.uint64(operand.offset & (2**64 - 1))
    narrow = isinstance(operand.base, Register) and TYPE_SIZES[operand.base.type] == 4
    if narrow:  # 32-bit addresses wrap at 32 bits
        return table.computed(lambda g: (g.registers[slot] + offset) & np.uint64(0xFFFF_FFFF), np.dtype(np.uint64))
    return table.computed(lambda g: g.registers[slot] + offset, np.dtype(np.uint64))


def decode_load(table: SlotTable, instruction: Instruction) -> Step:
    """ld and ldu, of every space."""
    space, count, words = split_opcode(instruction.opcode)
    ptx_type = instruction.opcode[-1]
    targets = elements(instruction.operands[0], count)
    if is_param_space(instruction.opcode):
        step = _load_parameter(table, instruction, targets, ptx_type)
        if step is not None:
            return step
        # The parameters of a kernel lie in global memory, those of functions that have an address in local memory.
        space = "generic" if table.function.is_kernel else "local"
    address = address_of(table, instruction.operands[1])
    size = TYPE_SIZES[ptx_type]
    slots = [table.destination(target, ptx_type) for target in targets]
    read = _wide_load if size == 16 else _load
    waits = bool(words & WAITING)

    def load(active: Active) -> None:
        wave, r = active.wave, active.registers
        addresses = r[address]
        if wave.observer is not None:
            wave.observer.on_access("load", space, active, addresses, size * count, instruction)
        if waits:
            active.waits += 1
        try:
            if count > 1:
                check_vector(addresses, size * count)
            for at, slot in enumerate(slots):
                r[slot] = read(active, space, addresses + np.uint64(at * size) if at else addresses, size)
        except BadAccess as bad:
            wave.fault(bad.text, active, bad.position, instruction, bad.slug)

    return load


def check_vector(addresses: Vector, size: int) -> None:
    """A vector access is aligned as a whole."""
    if int(np.bitwise_or.reduce(addresses)) & (size - 1):
        bad = int(np.flatnonzero(addresses & np.uint64(size - 1))[0])
        raise BadAccess(f"address 0x{int(addresses[bad]):x} is not a multiple of {size}", bad, "misaligned-access")


def _load(active: Active, space: str, addresses: Vector, size: int) -> Vector:
    return active.wave.spaces.load(space, active, addresses, size)


def _wide_load(active: Active, space: str, addresses: Vector, size: int) -> Vector:
    low = active.wave.spaces.load(space, active, addresses, 8)
    high = active.wave.spaces.load(space, active, addresses + np.uint64(8), 8)
    value = np.empty(len(low), WIDE)
    value["low"], value["high"] = low, high
    return value


def elements(operand: Operand, count: int) -> tuple[Operand, ...]:
    """The registers of a vector operand, or the one register."""
    items = operand.items if isinstance(operand, VectorOperand) else (operand,)
    if len(items) != count:
        raise Unsupported(f"a vector of {len(items)} where {count} elements are moved")
    return items


def _load_parameter(
    table: SlotTable, instruction: Instruction, targets: tuple[Operand, ...], ptx_type: str
) -> Step | None:
    """A load from a named parameter; None for one that has an address, or through a register, which holds it."""
    operand = instruction.operands[1]
    if not isinstance(operand, Address) or not isinstance(operand.base, Symbol):
        return None
    if operand.base.name in table.local_offsets:
        return None
    size = TYPE_SIZES[ptx_type]
    start = operand.base.offset + operand.offset
    cells = table.cells.get(operand.base.name)
    if cells is None:
        return _load_kernel_parameter(table, operand.base.name, start, targets, ptx_type)
    reads: list[tuple[Callable[[Active], Vector], int]] = []
    for at, target in enumerate(targets):
        read, bits = cell_reader(cells, start + at * size, size)
        table.flow.reads |= bits
        reads.append((read, table.destination(target, ptx_type)))

    def load(active: Active) -> None:
        for read, slot in reads:
            active.registers[slot] = read(active)

    return load


def _load_kernel_parameter(
    table: SlotTable, name: str, start: int, targets: tuple[Operand, ...], ptx_type: str
) -> Step:
    base = table.names.parameter_offset(name)
    if base is None:
        raise Unsupported(f"unknown parameter {name}")
    size = TYPE_SIZES[ptx_type]
    dtype = WIDE if size == 16 else UNSIGNED[size]
    slots = [(base + start + at * size, table.destination(t, ptx_type)) for at, t in enumerate(targets)]

    def load(active: Active) -> None:
        for offset, slot in slots:
            active.registers[slot] = np.frombuffer(active.wave.parameters, dtype, 1, offset)

    return load


def decode_store(table: SlotTable, instruction: Instruction) -> Step:
    """st, of every space that can be written."""
    space, count, _ = split_opcode(instruction.opcode)
    ptx_type = instruction.opcode[-1]
    values = [table.source(item, ptx_type) for item in elements(instruction.operands[1], count)]
    if is_param_space(instruction.opcode):
        return _store_parameter(table, instruction, values, TYPE_SIZES[ptx_type])
    if space == "const":
        raise Unsupported(f"instruction {instruction.text}")
    address = address_of(table, instruction.operands[0])
    size = TYPE_SIZES[ptx_type]

    def store(active: Active) -> None:
        wave, r = active.wave, active.registers
        addresses = r[address]
        if wave.observer is not None:
            wave.observer.on_access("store", space, active, addresses, size * count, instruction)
        try:
            if count > 1:
                check_vector(addresses, size * count)
            for at, slot in enumerate(values):
                place = addresses + np.uint64(at * size) if at else addresses
                if size == 16:
                    _wide_store(active, space, place, r[slot])
                else:
                    wave.spaces.store(space, active, place, size, r[slot])
        except BadAccess as bad:
            wave.fault(bad.text, active, bad.position, instruction, bad.slug)

    return store


def _wide_store(active: Active, space: str, addresses: Vector, value: Vector) -> None:
    spaces = active.wave.spaces
    spaces.store(space, active, addresses, 8, value["low"])
    spaces.store(space, active, addresses + np.uint64(8), 8, value["high"])


def _store_parameter(table: SlotTable, instruction: Instruction, values: list[int], size: int) -> Step:
    operand = instruction.operands[0]
    if not isinstance(operand, Address) or not isinstance(operand.base, Symbol):
        raise Unsupported(f"instruction {instruction.text} through a register")
    cells = table.cells.get(operand.base.name)
    if cells is None:
        raise Unsupported(f"unknown parameter {operand.base.name}")
    start = operand.base.offset + operand.offset
    moves: list[tuple[int, int, int]] = []  # cell, value, shift right
    for at, value in enumerate(values):
        offset = start + at * size
        if (offset, size) in cells:
            moves.append((cells[offset, size], value, -1))
        else:
            moves += [(cells[offset + byte, 1], value, 8 * byte) for byte in range(size)]
    for cell, _, _ in moves:
        table.flow.kills |= 1 << cell

    def store(active: Active) -> None:
        r = active.registers
        for cell, value, shift in moves:
            vector = r[value]
            r[cell] = vector if shift < 0 else (vector >> vector.dtype.type(shift)).astype(np.uint8)

    return store
