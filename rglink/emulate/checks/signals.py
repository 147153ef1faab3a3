"""Asynchronous copies that signal mbarrier objects: the signal is a release by the thread that issued the copy.

The machine tells of the mbarrier instructions themselves as accesses, of these signals only by the run of
instructions after it; so accesses between a copy and the next branch count as before the signal.

Source: PTX ISA, "cp.async.mbarrier.arrive", "cp.async.bulk": completion mechanism `mbarrier::complete_tx::bytes`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from rglink.emulate.checks.copies import CopyCheck
from rglink.emulate.checks.meaning import Meaning
from rglink.emulate.checks.strong import StrongCheck
from rglink.emulate.checks.touch import Touch, touches
from rglink.emulate.frames import Active, Group, Vector
from rglink.emulate.image import Image
from rglink.emulate.ptx import Address, Instruction, Register, Symbol

SIGNAL = Meaning(strong=True, acquires=False, releases=True, wide=False)


class SignalCheck:
    """Feeds signals of copies to the strong operations."""

    def __init__(self, image: Image, strong: StrongCheck, copies: CopyCheck) -> None:
        self.image, self.strong, self.copies = image, strong, copies
        self._runs: dict[tuple[int, int, int], tuple[Instruction, ...]] = {}

    def run(self, active: Active, number: int, first: int, last: int) -> None:
        """Instructions `first` to `last` of a function ran for the lanes."""
        found = self._runs.get((number, first, last))
        if found is None:
            run = self.image.by_number[number].instructions[first : last + 1]
            found = self._runs[number, first, last] = tuple(one for one in run if _signals(one))
        for instruction in found:
            if instruction.opcode[:3] == ("cp", "async", "mbarrier"):
                self.copies.hand_over(active.lanes)
            for touch in self._touches(active, instruction):
                self.strong.order.tick()
                self.strong.access("atomic", touch, SIGNAL)

    def _touches(self, active: Active, instruction: Instruction) -> list[Touch]:
        """Where the object of an instruction lies, for the lanes that its guard lets through."""
        assert isinstance(active, Group)
        table = self.image.code(active.code.name)[1]
        places = [operand for operand in instruction.operands if isinstance(operand, Address)]
        values = _address(active, places[-1], table.by_name, table.names.address)
        if values is None:
            return []
        if instruction.guard is not None:
            register, negated = instruction.guard
            mask = np.broadcast_to(active.registers[table.by_name[register.name]], (active.count,))
            index = np.flatnonzero(~mask if negated else mask)
            if not len(index):
                return []
            values = values if len(values) == 1 else values[index]
            active = active.subset(index, ())
        shared = any(part.startswith("shared") for part in instruction.opcode)
        return list(touches("shared" if shared else "generic", active, values, 8))


def _signals(instruction: Instruction) -> bool:
    """Whether an instruction is a copy that signals an mbarrier, or lets earlier ones do so."""
    return instruction.opcode[0] == "cp" and any(part.startswith("mbarrier") for part in instruction.opcode)


def _address(
    active: Active, address: Address, slots: Mapping[str, int], symbol: Callable[[str], int | None]
) -> Vector | None:
    """The addresses of an operand; None where a register has changed its kind."""
    offset = np.uint64(address.offset & (2**64 - 1))
    if isinstance(address.base, Register):
        slot = slots.get(address.base.name)
        return None if slot is None else active.registers[slot].astype(np.uint64) + offset
    if isinstance(address.base, Symbol):
        base = symbol(address.base.name)
        return None if base is None else np.array([base + address.base.offset + address.offset], np.uint64)
    return np.array([offset], np.uint64)
