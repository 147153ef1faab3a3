"""mma.sync, ldmatrix, stmatrix, movmatrix: registers of whole warps to fragments and back.

Source: PTX ISA, "Warp-Level Matrix Instructions"; the arithmetic and the layouts are in `matrix`.
"""

from __future__ import annotations

import numpy as np

from rglink.emulate.access import address_of
from rglink.emulate.arithmetic import resolve
from rglink.emulate.code import Control
from rglink.emulate.errors import Unsupported
from rglink.emulate.frames import Active, Group, Vector
from rglink.emulate.matrix import load_fragments, matrix_rows, store_rows
from rglink.emulate.memory import BadAccess
from rglink.emulate.ptx import Immediate, Instruction, Operand
from rglink.emulate.ptx import Vector as VectorOperand
from rglink.emulate.slots import SlotTable
from rglink.emulate.warp import ALL, lanes_of, rows_of, sync_control

EVERYONE = Immediate(ALL)


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, VectorOperand) else (operand,)


def fragment_of(group: Group, slots: list[int]) -> Vector:
    """The registers `slots` as [warps, 32, registers]."""
    return np.stack([rows_of(group, group.registers[slot]) for slot in slots], axis=-1)


def put_fragment(group: Group, slots: list[int], fragment: Vector) -> None:
    """Write [warps, 32, registers] to the registers `slots`."""
    for at, slot in enumerate(slots):
        group.registers[slot] = lanes_of(group, fragment[:, :, at])


def decode_mma(table: SlotTable, instruction: Instruction, at: int) -> Control:
    """mma.sync d, a, b, c."""
    operation = resolve("mma", instruction.opcode[1:])
    if len(instruction.operands) != 4:
        raise Unsupported(f"instruction {instruction.text}")
    kinds = instruction.opcode[-4:]  # of d, a, b and c
    types = ["b64" if kind == "f64" else "b32" for kind in kinds]
    d, a, b, c = (_items(operand) for operand in instruction.operands)
    sources = [[table.source(o, t) for o in items] for items, t in zip((a, b, c), types[1:], strict=True)]
    targets = [table.destination(item, types[0]) for item in d]

    def multiply(group: Group, masks: Vector) -> None:
        put_fragment(group, targets, operation(*[fragment_of(group, slots) for slots in sources]))

    return sync_control(
        table, instruction, at, EVERYONE, multiply, ([*sources[0], *sources[1], *sources[2]], targets), False
    )


def _matrices(instruction: Instruction) -> tuple[int, bool]:
    """(number of 8x8 matrices, transposed)."""
    parts = [part.split("::")[0] for part in instruction.opcode[1:]]
    count = {"x1": 1, "x2": 2, "x4": 4}
    known = {"sync", "aligned", "m8n8", "trans", "shared", "b16", *count}
    found = [count[part] for part in parts if part in count]
    if set(parts) - known or len(found) != 1 or "m8n8" not in parts:
        raise Unsupported(f"instruction {instruction.text}")
    return found[0], "trans" in parts


def _row_addresses(group: Group, addresses: Vector, count: int) -> tuple[Vector, Vector]:
    """Addresses of the 16-bit elements and the lanes that name their rows, each [warps, matrices, 8, 8], flat."""
    rows = rows_of(group, addresses)
    named = matrix_rows(count)
    places = rows[:, named][..., None] + np.arange(0, 16, 2, dtype=np.uint64)
    lanes = (np.arange(len(rows)) * 32)[:, None, None] + named[None]
    return places, np.broadcast_to(lanes[..., None], places.shape)


def decode_ldmatrix(table: SlotTable, instruction: Instruction, at: int) -> Control:
    """ldmatrix.sync.aligned.m8n8.xN{.trans}{.shared}.b16."""
    return _decode_memory(table, instruction, at, instruction.operands[1], instruction.operands[0], True)


def decode_stmatrix(table: SlotTable, instruction: Instruction, at: int) -> Control:
    """stmatrix.sync.aligned.m8n8.xN{.trans}{.shared}.b16."""
    return _decode_memory(table, instruction, at, instruction.operands[0], instruction.operands[1], False)


def _decode_memory(
    table: SlotTable, instruction: Instruction, at: int, address: Operand, registers: Operand, loads: bool
) -> Control:
    count, transposed = _matrices(instruction)
    items = _items(registers)
    if len(items) != count:
        raise Unsupported(f"instruction {instruction.text} with {len(items)} registers")
    where = address_of(table, address)
    slots = [table.destination(i, "b32") if loads else table.source(i, "b32") for i in items]
    space = "shared" if any(part.startswith("shared") for part in instruction.opcode) else "generic"

    def move(group: Group, masks: Vector) -> None:
        wave = group.wave
        places, lanes = _row_addresses(group, group.registers[where], count)
        warps = np.unique(group.lanes >> 5)
        places, lanes = places[warps], lanes[warps]
        active = Active(wave, lanes.reshape(-1), False, [])
        if wave.observer is not None:
            first, who = places[..., 0].reshape(-1), lanes[..., 0].reshape(-1)
            rows = Active(wave, who, False, [])
            wave.observer.on_access("load" if loads else "store", space, rows, first, 16, instruction)
        shape = (wave.lanes >> 5, count, 8, 8)
        try:
            if loads:
                words = np.zeros(shape, np.uint16)
                words[warps] = wave.spaces.load(space, active, places.reshape(-1), 2).reshape(places.shape)
                put_fragment(group, slots, load_fragments(words, transposed))
            else:
                words = store_rows(fragment_of(group, slots), transposed)
                wave.spaces.store(space, active, places.reshape(-1), 2, words[warps].reshape(-1))
        except BadAccess as bad:
            lane = int(np.flatnonzero(group.lanes == active.lanes[bad.position])[0])
            wave.fault(bad.text, group, lane, instruction, bad.slug)

    operands = ([where], slots) if loads else ([where, *slots], [])
    return sync_control(table, instruction, at, EVERYONE, move, operands, False)


def decode_movmatrix(table: SlotTable, instruction: Instruction, at: int) -> Control:
    """movmatrix.sync.aligned.m8n8.trans.b16 d, a."""
    operation = resolve("movmatrix", instruction.opcode[1:])
    target, source = instruction.operands
    a, d = table.source(source, "b32"), table.destination(target, "b32")

    def move(group: Group, masks: Vector) -> None:
        put_fragment(group, [d], operation(fragment_of(group, [a])))

    return sync_control(table, instruction, at, EVERYONE, move, ([a], [d]), False)
