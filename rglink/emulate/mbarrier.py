"""mbarrier objects in shared memory.

The 64-bit object holds, in a layout of this machine's own: bits 0 to 19 the pending arrivals, 20 to 39 the expected
ones, 40 to 61 the pending bytes of asynchronous copies (two's complement), 63 the phase. The state that an arrival
returns is the object as it was.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rglink.emulate.access import ORDERS, SCOPES, address_of
from rglink.emulate.code import Step
from rglink.emulate.errors import Unsupported
from rglink.emulate.frames import Active, Vector
from rglink.emulate.memory import BadAccess
from rglink.emulate.ptx import Instruction, Sink
from rglink.emulate.slots import SlotTable

MOST = (1 << 20) - 1
BYTES = 22
# What the observer is told of operations on the object that are no read-modify-writes.
KINDS = {"init": "store", "inval": "store", "test_wait": "load", "try_wait": "load"}


class State:
    """One object, unpacked."""

    def __init__(self, word: int) -> None:
        self.pending, self.expected = word & MOST, word >> 20 & MOST
        self.bytes = (word >> 40) & ((1 << BYTES) - 1)
        if self.bytes >> (BYTES - 1):
            self.bytes -= 1 << BYTES
        self.phase = word >> 63

    def settle(self) -> None:
        """Complete the phase if nothing is awaited."""
        if self.pending == 0 and self.bytes == 0:
            self.phase ^= 1
            self.pending = self.expected

    def word(self) -> int:
        """The object, packed."""
        return self.pending | self.expected << 20 | (self.bytes & ((1 << BYTES) - 1)) << 40 | self.phase << 63


def change(
    active: Active, space: str, addresses: Vector, instruction: Instruction, update: Callable[[State, int], None]
) -> Vector:
    """Apply `update` (state, lane) for each lane in order; returns the objects as each lane found them."""
    found = np.zeros(active.count, np.uint64)
    observer = active.wave.observer
    if observer is not None and instruction.opcode[0] == "mbarrier":
        kind = KINDS.get(instruction.opcode[1], "atomic")
        observer.on_access(kind, space, active, addresses, 8, instruction)
    try:
        for view, index, positions in active.wave.spaces.places(space, active, addresses, 8):
            lanes = range(active.count) if positions is None else positions.tolist()
            for lane, place in zip(lanes, index.tolist(), strict=True):
                word = int(view[place])
                found[lane] = word
                state = State(word)
                update(state, lane)
                view[place] = state.word()
    except BadAccess as bad:
        active.wave.fault(bad.text, active, bad.position, instruction, bad.slug)
    return found


def complete_bytes(active: Active, addresses: Vector, size: int, instruction: Instruction) -> None:
    """An asynchronous copy of `size` bytes has ended."""

    def update(state: State, lane: int) -> None:
        state.bytes -= size
        state.settle()

    change(active, "shared", addresses, instruction, update)


def decode_copy_arrive(table: SlotTable, instruction: Instruction) -> Step:
    """cp.async.mbarrier.arrive: the copies before it have ended at once, so it arrives at once."""
    address = address_of(table, instruction.operands[0])
    space = "shared" if any(part.startswith("shared") for part in instruction.opcode) else "generic"
    counted = "noinc" in instruction.opcode

    def update(state: State, lane: int) -> None:
        if counted:
            state.pending -= 1
        state.settle()

    def arrive(active: Active) -> None:
        change(active, space, active.registers[address], instruction, update)

    return arrive


def decode_mbarrier(table: SlotTable, instruction: Instruction) -> Step:
    """mbarrier.init, inval, arrive, arrive_drop, expect_tx, complete_tx, test_wait, try_wait, pending_count."""
    what, *parts = instruction.opcode[1:]
    space, words = "generic", set[str]()
    for part in parts:
        if part.split("::")[0] == "shared":
            space = "shared"
        elif part not in ORDERS and part not in SCOPES and part != "b64":
            words.add(part)
    decoder = DECODERS.get(what)
    if decoder is None or words - {"noComplete", "expect_tx", "parity"}:
        raise Unsupported(f"instruction {instruction.text}")
    return decoder(table, instruction, space, frozenset(words))


def _init(table: SlotTable, instruction: Instruction, space: str, words: frozenset[str]) -> Step:
    address = address_of(table, instruction.operands[0])
    count = table.source(instruction.operands[1], "u32") if len(instruction.operands) > 1 else -1

    def init(active: Active) -> None:
        counts = np.broadcast_to(active.registers[count], (active.count,)) if count >= 0 else None

        def update(state: State, lane: int) -> None:
            expected = 0 if counts is None else int(counts[lane])
            if counts is not None and not 1 <= expected <= MOST:
                active.wave.fault(f"mbarrier count is {expected}, wanted 1 to {MOST}", active, lane, instruction)
            state.pending = state.expected = expected
            state.bytes = state.phase = 0

        change(active, space, active.registers[address], instruction, update)

    return init


def _arrive(table: SlotTable, instruction: Instruction, space: str, words: frozenset[str]) -> Step:
    operands = list(instruction.operands)
    address_at = 0 if len(operands) == 1 or _is_address(operands[0]) else 1
    result = operands[0] if address_at else Sink()
    address = address_of(table, operands[address_at])
    rest = operands[address_at + 1 :]
    amount = table.source(rest[0], "u32") if rest else -1
    target = table.destination(result, "b64")
    drops, expects = instruction.opcode[1] == "arrive_drop", "expect_tx" in words

    def arrive(active: Active) -> None:
        amounts = np.broadcast_to(active.registers[amount], (active.count,)) if amount >= 0 else None

        def update(state: State, lane: int) -> None:
            given = 1 if amounts is None else int(amounts[lane])
            arrivals = 1 if expects else given
            if expects:
                state.bytes += given
            if arrivals > state.pending:
                text = f"{arrivals} arrivals at an mbarrier that awaits {state.pending}"
                active.wave.fault(text, active, lane, instruction)
            state.pending -= arrivals
            state.expected -= arrivals if drops else 0
            state.settle()

        active.registers[target] = change(active, space, active.registers[address], instruction, update)

    return arrive


def _is_address(operand: object) -> bool:
    from rglink.emulate.ptx import Address

    return isinstance(operand, Address)


def _transactions(table: SlotTable, instruction: Instruction, space: str, words: frozenset[str]) -> Step:
    address = address_of(table, instruction.operands[0])
    amount = table.source(instruction.operands[1], "u32")
    sign = 1 if instruction.opcode[1] == "expect_tx" else -1

    def adjust(active: Active) -> None:
        amounts = np.broadcast_to(active.registers[amount], (active.count,))

        def update(state: State, lane: int) -> None:
            state.bytes += sign * int(amounts[lane])
            if sign < 0:
                state.settle()

        change(active, space, active.registers[address], instruction, update)

    return adjust


def _wait(table: SlotTable, instruction: Instruction, space: str, words: frozenset[str]) -> Step:
    target, where, state, *_ = instruction.operands
    address = address_of(table, where)
    by_parity = "parity" in words
    asked = table.source(state, "u32" if by_parity else "b64")
    slot = table.destination(target, "pred")
    shift = np.uint64(63)

    def test(active: Active) -> None:
        active.waits += 1
        now = change(active, space, active.registers[address], instruction, lambda state, lane: None) >> shift
        wanted = active.registers[asked]
        before = (wanted & np.uint32(1)).astype(np.uint64) if by_parity else wanted >> shift
        active.registers[slot] = now != before

    return test


def _pending(table: SlotTable, instruction: Instruction, space: str, words: frozenset[str]) -> Step:
    target, state = instruction.operands
    a, slot = table.source(state, "b64"), table.destination(target, "u32")

    def pending(active: Active) -> None:
        active.registers[slot] = (active.registers[a] & np.uint64(MOST)).astype(np.uint32)

    return pending


Decoder = Callable[[SlotTable, Instruction, str, frozenset[str]], Step]
DECODERS: dict[str, Decoder] = {
    "init": _init,
    "inval": _init,
    "arrive": _arrive,
    "arrive_drop": _arrive,
    "expect_tx": _transactions,
    "complete_tx": _transactions,
    "test_wait": _wait,
    "try_wait": _wait,
    "pending_count": _pending,
}
