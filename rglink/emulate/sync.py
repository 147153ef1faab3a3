"""Barriers of a block: bar and barrier, by number and by count.

A barrier is complete when every thread of the block that has not ended has come, or, with a count, when whole warps of
that many threads have. `bar.arrive` counts and goes on.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions": bar, barrier.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rglink.emulate.code import Control, Step
from rglink.emulate.errors import Unsupported
from rglink.emulate.frames import Active, Group, Vector
from rglink.emulate.ptx import Instruction
from rglink.emulate.slots import SlotTable
from rglink.emulate.wave import Wave

BARRIERS = 16


@dataclass(frozen=True)
class BarrierUse:
    """One barrier instruction: `reduction` is "", "popc", "and" or "or", with the slots of its predicate and result."""

    instruction: Instruction
    arrives_only: bool
    reduction: str
    predicate: int
    target: int


@dataclass
class Waiting:
    """One barrier number: which lanes have come, with what predicate and count, and the groups that wait."""

    here: NDArray[np.bool_]
    holds: NDArray[np.bool_]
    wanted: NDArray[np.int64]
    groups: list[tuple[Group, BarrierUse]] = field(default_factory=list)


class Barriers:
    """All barriers of the blocks of a wave."""

    def __init__(self, wave: Wave) -> None:
        self.wave = wave
        self.waiting: dict[int, Waiting] = {}

    def arrive(self, group: Group, number: int, wanted: int, use: BarrierUse) -> bool:
        """The lanes of `group` come to barrier `number`; `wanted` threads (0: all of the block) complete it."""
        wave = self.wave
        if wave.observer is not None:
            wave.observer.on_barrier(group, number, use.instruction, True)
        waiting = self.waiting.get(number)
        if (waiting is None or not waiting.here.any()) and not use.arrives_only and self._complete(group, wanted):
            if use.reduction:
                mask = np.broadcast_to(group.registers[use.predicate], (group.count,))
                group.registers[use.target] = self._reduced(use.reduction, mask, group.lanes, group)
            return self._pass(group, number, use)
        if waiting is None:
            lanes = wave.lanes
            waiting = Waiting(np.zeros(lanes, np.bool_), np.zeros(lanes, np.bool_), np.zeros(wave.blocks, np.int64))
            self.waiting[number] = waiting
        waiting.here[group.lanes] = True
        waiting.wanted[group.lanes // wave.block_lanes] = wanted
        if use.reduction:
            waiting.holds[group.lanes] = group.registers[use.predicate]
        if use.arrives_only:
            group.pc += 1
        else:
            waiting.groups.append((group, use))
        self._release(number, waiting)
        return use.arrives_only

    def _pass(self, group: Group, number: int, use: BarrierUse) -> bool:
        group.pc += 1
        if self.wave.observer is not None:
            self.wave.observer.on_barrier(group, number, use.instruction, False)
        return True

    def _complete(self, group: Group, wanted: int) -> bool:
        """Whether the group alone holds all that the barrier waits for."""
        wave = self.wave
        if wanted not in (0, wave.block_lanes):
            return False
        if group.count == wave.alive_count:
            return True
        counts = np.bincount(group.lanes // wave.block_lanes, minlength=wave.blocks)
        return bool(((counts == 0) | (counts == wave.live_in_block)).all())

    def recheck(self) -> None:
        """Lanes have ended: those that wait may have waited for them."""
        for number, waiting in list(self.waiting.items()):
            if waiting.groups:
                self._release(number, waiting)

    def _release(self, number: int, waiting: Waiting) -> None:
        wave = self.wave
        shape = (wave.blocks, wave.block_lanes)
        here = waiting.here.reshape(shape)
        came = here.sum(axis=1)
        by_warp = here.reshape(wave.blocks, -1, 32)
        alive = wave.alive.reshape(wave.blocks, -1, 32)
        # A warp counts as 32 threads once all of its threads that have not ended are there.
        whole = by_warp.any(axis=2) & ~(alive & ~by_warp).any(axis=2)
        done = np.where(
            waiting.wanted == 0,
            (came > 0) & ~(alive & ~by_warp).any(axis=(1, 2)),
            32 * whole.sum(axis=1) >= waiting.wanted,
        )
        done &= came > 0
        if not done.any():
            return
        groups, waiting.groups = waiting.groups, []
        for group, use in groups:
            self._release_group(group, use, number, done, waiting)
        here[done] = False
        waiting.holds.reshape(shape)[done] = False

    def _release_group(
        self, group: Group, use: BarrierUse, number: int, done: NDArray[np.bool_], waiting: Waiting
    ) -> None:
        free = done[group.lanes // self.wave.block_lanes]
        if not free.any():
            waiting.groups.append((group, use))
            return
        if not free.all():
            live = group.code.live_at(group.pc)
            waiting.groups.append((group.part(np.flatnonzero(~free), live), use))
            group = group.part(np.flatnonzero(free), live)
        if use.reduction:
            lanes = np.flatnonzero(waiting.here)
            group.registers[use.target] = self._reduced(use.reduction, waiting.holds[lanes], lanes, group)
        group.patience = 0
        self._pass(group, number, use)
        self.wave.scheduler.push(group)

    def _reduced(self, kind: str, mask: NDArray[np.bool_], lanes: NDArray[np.int64], group: Group) -> Vector:
        """The reduction over the lanes of each block, for the lanes of `group`."""
        wave = self.wave
        blocks = lanes // wave.block_lanes
        holding = np.bincount(blocks, weights=mask, minlength=wave.blocks)
        found: Vector = holding.astype(np.uint32)
        if kind == "or":
            found = holding > 0
        elif kind == "and":
            found = holding == np.bincount(blocks, minlength=wave.blocks)
        return found[group.lanes // wave.block_lanes]

    def stuck(self) -> list[tuple[Group, Instruction, int]]:
        """The groups that wait, with their instruction and barrier."""
        return [(g, use.instruction, number) for number, w in sorted(self.waiting.items()) for g, use in w.groups]


def decode_barrier(table: SlotTable, instruction: Instruction, at: int) -> Control:
    """bar and barrier (bar.warp is in `warp`)."""
    parts = [part for part in instruction.opcode[1:] if part not in ("cta", "aligned")]
    if not parts or parts[0] not in ("sync", "arrive", "red"):
        raise Unsupported(f"instruction {instruction.text}")
    reduction, predicate, target = "", -1, -1
    operands = list(instruction.operands)
    if parts[0] == "red":
        reduction = parts[1]
        target = table.destination(operands.pop(0), "u32" if reduction == "popc" else "pred")
        predicate = table.source(operands.pop(), "pred")
    elif len(parts) > 1:
        raise Unsupported(f"instruction {instruction.text}")
    use = BarrierUse(instruction, parts[0] == "arrive", reduction, predicate, target)
    number = table.source(operands[0], "u32")
    wanted = table.source(operands[1], "u32") if len(operands) > 1 else -1

    def barrier(group: Group) -> bool:
        r = group.registers
        threads = np.zeros(1, np.uint32) if wanted < 0 else r[wanted]
        pairs = (r[number].astype(np.uint64) << np.uint64(32)) | threads
        found = np.unique(pairs).tolist()
        # A negated predicate is no register, so it is not among those that are live.
        live = (*table.code.live_at(at), *((predicate,) if reduction else ()))
        for pair in found:
            part = group if len(found) == 1 else group.part(np.flatnonzero(pairs == pair), live)
            which, count = pair >> 32, pair & 0xFFFF_FFFF
            _check_barrier(part, which, count, instruction)
            goes_on = group.wave.barriers.arrive(part, which, count, use)
            if part is group:
                return goes_on
            if goes_on:
                group.wave.scheduler.push(part)
        return False

    return barrier


def _check_barrier(group: Group, number: int, threads: int, instruction: Instruction) -> None:
    if number >= BARRIERS:
        group.wave.fault(f"barrier {number} does not exist, a block has {BARRIERS}", group, 0, instruction)
    if threads % 32 or threads > group.wave.block_lanes:
        text = f"barrier waits for {threads} threads, wanted a multiple of 32 up to {group.wave.block_lanes}"
        group.wave.fault(text, group, 0, instruction)


def decode_fence(table: SlotTable, instruction: Instruction) -> Step:
    """membar and fence: memory is always in order here, so they only tell the observer."""

    def fence(active: Active) -> None:
        if active.wave.observer is not None:
            active.wave.observer.on_fence(active, instruction)

    return fence
