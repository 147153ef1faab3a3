"""Branches, calls and ends to controls.

Source: PTX ISA, "Control Flow Instructions".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rglink.emulate import system
from rglink.emulate.code import Code, Control
from rglink.emulate.errors import Unsupported
from rglink.emulate.frames import Frame, Group, Registers, Vector, frame_below, returned
from rglink.emulate.memory import BadAccess
from rglink.emulate.ptx import Arguments, Instruction, Label, Register, Symbol
from rglink.emulate.slots import Cells, SlotTable
from rglink.emulate.transfer import Argument, Moves, argument_of, moves_between

if TYPE_CHECKING:
    from rglink.emulate.image import Image


def go(group: Group, pc: int, back: bool) -> bool:
    """Continue at `pc`."""
    group.pc = pc
    if back:
        group.wave.turn_back(group)
    return True


def decode_branch(table: SlotTable, instruction: Instruction, at: int) -> Control:
    """bra, with or without a guard."""
    label = instruction.operands[0]
    if not isinstance(label, Label):
        raise Unsupported(f"instruction {instruction.text}")
    target = table.function.labels[label.name]
    back = target <= at
    table.flow.targets = (target,)
    if instruction.guard is None:
        table.flow.falls = False
        return lambda group: go(group, target, back)
    register, negated = instruction.guard
    slot = table.source(register, "pred")
    code, following = table.code, at + 1

    def branch(group: Group) -> bool:
        mask = group.registers[slot]
        count = np.count_nonzero(mask)
        taken = len(mask) - count if negated else count
        if group.wave.observer is not None:
            group.wave.observer.on_branch(group, int(taken) * (group.count // len(mask)), instruction)
        if taken == 0:
            group.pc = following
            return True
        if taken == len(mask):
            return go(group, target, back)
        chosen = ~mask if negated else mask
        diverge(group, code, chosen, (target, back), following)
        return False

    return branch


def diverge(group: Group, code: Code, chosen: Vector, where: tuple[int, bool], following: int) -> None:
    """Split `group`: the chosen lanes go to `where` (place, whether backwards), the others to `following`."""
    target, back = where
    taken = group.part(np.flatnonzero(chosen), code.live_at(target))
    other = group.part(np.flatnonzero(~chosen), code.live_at(following))
    go(taken, target, back)
    other.pc = following
    group.wave.scheduler.push(other)
    group.wave.scheduler.push(taken)


def decode_indexed_branch(table: SlotTable, instruction: Instruction, at: int) -> Control:
    """brx.idx: the index picks a label of a list."""
    index, name = instruction.operands
    labels = table.function.tables.get(name.name) if isinstance(name, Symbol) else None
    if labels is None:
        raise Unsupported(f"instruction {instruction.text} without a list of targets")
    targets = [table.function.labels[label] for label in labels]
    slot = table.source(index, "u32")
    table.flow.targets, table.flow.falls = tuple(sorted(set(targets))), False
    code = table.code

    def branch(group: Group) -> bool:
        values = group.registers[slot]
        high = int(values.max())
        if high >= len(targets):
            bad = int(np.flatnonzero(values >= len(targets))[0])
            text = f"brx.idx index is {int(values[bad])}, the list has {len(targets)} targets"
            group.wave.fault(text, group, bad, instruction)
        found = np.unique(values)
        for value in found[:-1] if len(found) > 1 else found[:0]:
            part = group.part(np.flatnonzero(values == value), code.live_at(targets[value]))
            go(part, targets[value], targets[value] <= at)
            group.wave.scheduler.push(part)
        if len(found) == 1:
            return go(group, targets[found[0]], targets[found[0]] <= at)
        last = group.part(np.flatnonzero(values == found[-1]), code.live_at(targets[found[-1]]))
        go(last, targets[found[-1]], targets[found[-1]] <= at)
        group.wave.scheduler.push(last)
        return False

    return branch


class CallSite:
    """One call instruction: what it passes, and how each callee it meets takes that."""

    def __init__(self, table: SlotTable, instruction: Instruction, at: int, image: Image) -> None:
        self.code, self.at, self.instruction, self.image = table.code, at, instruction, image
        lists = [o for o in instruction.operands if isinstance(o, Arguments)]
        others = [o for o in instruction.operands if not isinstance(o, Arguments)]
        if not others:
            raise Unsupported(f"instruction {instruction.text} without a target")
        # (results), target, (arguments): a list before the target holds results.
        first_is_results = bool(instruction.operands) and isinstance(instruction.operands[0], Arguments)
        results = lists[0].items if first_is_results else ()
        rest = lists[1:] if first_is_results else lists
        arguments = rest[0].items if rest else ()
        reads_before = table.flow.reads
        self.arguments = [argument_of(table, operand, True) for operand in arguments]
        self.target = others[0]
        self.slot = table.source(self.target, "u64") if isinstance(self.target, Register) else -1
        self.reads = table.flow.reads | reads_before
        self.results = [argument_of(table, operand, False) for operand in results]
        self.into: dict[int, Moves] = {}
        self.out_of: dict[int, Moves] = {}
        self.live: tuple[int, ...] | None = None

    def enter(self, group: Group, callee: Code, cells: tuple[list[Cells], list[Cells]]) -> bool:
        """Start `callee` for the lanes of `group`."""
        moves = self.into.get(callee.number)
        if moves is None:
            moves = self.into[callee.number] = moves_between(self.arguments, cells[0])
            self.out_of[callee.number] = moves_between(
                [Argument(result) for result in cells[1]], [result.cells for result in self.results]
            )
        if self.live is None:
            kills = self.code.flows[self.at].kills
            self.live = tuple(s for s in self.code.live_at(self.at + 1) if not kills >> s & 1)
        wave, caller = group.wave, group.registers
        kept = self.code.template.copy()
        for slot in self.live:
            kept[slot] = caller[slot]
        frame = Frame(
            self.code,
            self.at + 1,
            kept,
            self.live,
            group.count,
            None,
            group.frame,
            group.path,
            group.depth + 1,
            group.stack,
        )
        fresh = callee.template.copy()
        for slot, read in moves:
            fresh[slot] = read(group)
        group.path = wave.path_of(group.path, self.code.number, self.at)
        group.stack += self.code.local_bytes
        group.frame, group.code, group.registers, group.pc = frame, callee, fresh, 0
        if group.steps > wave.budget.limit:
            wave.overrun(group)
        self._make_room(group, callee)
        return True

    def _make_room(self, group: Group, callee: Code) -> None:
        """Extend local memory for the callee, and write to it the parameters whose addresses it takes."""
        wave = group.wave
        try:
            wave.spaces.grow_stack(group.stack + callee.local_bytes)
        except BadAccess as bad:
            wave.fault(bad.text, group, 0, self.instruction, bad.slug)
        for offset, size, slot in callee.spills:
            place = np.array([group.stack + offset], np.uint64)
            if wave.observer is not None:
                wave.observer.on_access("store", "local", group, place, size, self.instruction)
            wave.spaces.store("local", group, place, size, group.registers[slot])


def decode_call(table: SlotTable, instruction: Instruction, at: int, image: Image) -> Control:
    """call, direct and indirect, and the functions that the system provides."""
    site = CallSite(table, instruction, at, image)
    table.code.calls[at] = site
    if isinstance(site.target, Symbol):
        name = image.resolved(site.target.name)
        if name is None:
            return system.decode_system_call(table, instruction, site.target.name, site.arguments, site.results, at)
        return lambda group: site.enter(group, *image.callee(name))

    def indirect(group: Group) -> bool:
        values = group.registers[site.slot]
        found = np.unique(values)
        for value in found.tolist():
            # Parts that stood at this call together would be joined again: each enters at once.
            part = group if len(found) == 1 else group.part(np.flatnonzero(values == value), site.code.live_at(at))
            name = image.function_at(value)
            if name is None:
                group.wave.fault(f"call of 0x{value:x}, which is no function", part, 0, instruction, "wild-call")
            site.enter(part, *image.callee(name))
            if part is group:
                return True
            group.wave.scheduler.push(part)
        return False

    return indirect


def leave(group: Group) -> bool:
    """ret: back to the caller, or the end of a thread."""
    frame = group.frame
    if frame is None:
        group.wave.retire(group)
        return False
    site = frame.code.calls[frame.pc - 1]
    values = [(slot, read(group)) for slot, read in site.out_of[group.code.number]]
    registers: Registers = returned(group, frame)
    for slot, value in values:
        registers[slot] = value
    group.registers, group.code, group.pc = registers, frame.code, frame.pc
    group.path, group.stack, group.frame = frame.path, frame.stack, frame_below(frame)
    return True


def decode_ret(table: SlotTable, instruction: Instruction, at: int) -> Control:
    """ret and ret.uni."""
    table.flow.falls = False
    for cells in result_cells(table):
        for slot in cells.values():
            table.flow.reads |= 1 << slot
    return leave


def result_cells(table: SlotTable) -> list[Cells]:
    """The cells of the function's results, in order."""
    return [table.cells[result.name] for result in table.function.results]


def decode_exit(table: SlotTable, instruction: Instruction, at: int) -> Control:
    """exit: the end of a thread, however deep in calls."""
    table.flow.falls = False

    def end(group: Group) -> bool:
        group.wave.retire(group)
        return False

    return end


def decode_trap(table: SlotTable, instruction: Instruction, at: int) -> Control:
    """trap and brkpt: the launch fails."""
    table.flow.falls = False

    def trap(group: Group) -> bool:
        group.wave.fault(f"{instruction.opcode[0]} was executed", group, 0, instruction, "trap")

    return trap


def guarded(control: Control, table: SlotTable, slot: int, negated: bool, at: int) -> Control:
    """`control` for the lanes whose predicate holds; the others go on with the next instruction."""
    code = table.code

    def maybe(group: Group) -> bool:
        mask = group.registers[slot]
        count = np.count_nonzero(mask)
        taken = len(mask) - count if negated else count
        if taken == 0:
            group.pc = at + 1
            return True
        if taken == len(mask):
            return control(group)
        chosen = ~mask if negated else mask
        diverge(group, code, chosen, (at, False), at + 1)
        return False

    return maybe
