"""Clusters of one block: the only ones that this machine has. mapa, getctarank, barrier.cluster.

Source: PTX ISA, "Data Movement and Conversion Instructions: mapa, getctarank", "barrier.cluster".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rglink.emulate.code import Control, Step
from rglink.emulate.decode import operand_count
from rglink.emulate.errors import Unsupported
from rglink.emulate.frames import Active, Group, Lanes
from rglink.emulate.ptx import Instruction
from rglink.emulate.slots import SlotTable
from rglink.emulate.wave import Wave

# Barriers of a block are numbered from 0 to 15; observers hear of the cluster's by this number.
CLUSTER_BARRIER = 16
ORDERS = {"arrive": ("release", "relaxed"), "wait": ("acquire",)}


class ClusterBarriers:
    """The cluster barrier of every block of a wave.

    A lane that has arrived is `owing` until all of its block have; then it is `free` to pass its wait.
    """

    def __init__(self, wave: Wave) -> None:
        self.wave = wave
        self.owing = np.zeros(wave.lanes, np.bool_)
        self.free = np.zeros(wave.lanes, np.bool_)
        self.waiting: list[tuple[Group, Instruction]] = []
        self.last: Instruction | None = None

    def arrive(self, group: Group, instruction: Instruction, noted: Instruction) -> None:
        """The lanes of `group` arrive; observers hear of a completed barrier under `noted`."""
        again = self.owing[group.lanes] | self.free[group.lanes]
        if again.any():
            text = "barrier.cluster.arrive without barrier.cluster.wait since the last one"
            self.wave.fault(text, group, int(np.flatnonzero(again)[0]), instruction)
        self.owing[group.lanes] = True
        self.last = noted
        self._complete()

    def wait(self, group: Group, instruction: Instruction) -> bool:
        """Whether the whole group may pass; otherwise the lanes that must wait do, the others are scheduled."""
        early = ~(self.owing[group.lanes] | self.free[group.lanes])
        if early.any():
            text = "barrier.cluster.wait without barrier.cluster.arrive"
            self.wave.fault(text, group, int(np.flatnonzero(early)[0]), instruction)
        passing = self.free[group.lanes]
        if passing.all():
            self.free[group.lanes] = False
            group.pc += 1
            return True
        self._split(group, instruction, passing)
        return False

    def _split(self, group: Group, instruction: Instruction, passing: NDArray[np.bool_]) -> None:
        live = group.code.live_at(group.pc)
        self.waiting.append((group.part(np.flatnonzero(~passing), live), instruction))
        if passing.any():
            part = group.part(np.flatnonzero(passing), live)
            self.free[part.lanes] = False
            part.pc += 1
            self.wave.scheduler.push(part)

    def recheck(self) -> None:
        """Lanes have ended: those that are left may all have arrived."""
        if self.owing.any():
            self._complete()

    def _complete(self) -> None:
        """Free the lanes of blocks whose threads have all arrived."""
        wave = self.wave
        self.owing &= wave.alive
        owing = self.owing.reshape(wave.blocks, -1)
        done = owing.any(axis=1) & (owing.sum(axis=1) == wave.live_in_block)
        if not done.any():
            return
        freed = (owing & done[:, None]).reshape(-1)
        self._tell(np.flatnonzero(freed))
        self.owing &= ~freed
        self.free |= freed
        waiting, self.waiting = self.waiting, []
        for group, instruction in waiting:
            passing = self.free[group.lanes]
            if not passing.all():
                self._split(group, instruction, passing)
                continue
            self.free[group.lanes] = False
            group.pc += 1
            group.patience = 0
            wave.scheduler.push(group)

    def _tell(self, lanes: Lanes) -> None:
        """Observers take the barrier for one of the block, met and left at once by the last arrival.

        So they miss a race of an access between a thread's arrival and that moment, but report none that is not there.
        """
        observer = self.wave.observer
        if observer is None or self.last is None:
            return
        everyone = Active(self.wave, lanes, False, [])
        observer.on_barrier(everyone, CLUSTER_BARRIER, self.last, True)
        observer.on_barrier(everyone, CLUSTER_BARRIER, self.last, False)

    def stuck(self) -> list[tuple[Group, Instruction]]:
        """The groups that wait, with their instructions."""
        return self.waiting


def decode_cluster_barrier(table: SlotTable, instruction: Instruction, at: int) -> Control:
    """barrier.cluster.arrive and barrier.cluster.wait."""
    what, *words = instruction.opcode[2:] or ("",)
    if what not in ORDERS or set(words) - {"aligned", *ORDERS[what]} or instruction.operands:
        raise Unsupported(f"instruction {instruction.text}")
    if what == "wait":
        return lambda group: group.wave.clusters.wait(group, instruction)
    noted = replace(instruction, opcode=("barrier", "cluster"))

    def arrive(group: Group) -> bool:
        group.wave.clusters.arrive(group, instruction, noted)
        group.pc += 1
        return True

    return arrive


def decode_mapa(table: SlotTable, instruction: Instruction) -> Step:
    """mapa: the address that shared memory has in block `b` of the cluster, which can only be block 0."""
    target, address, block = operand_count(instruction, 3)
    kind = _address_type(instruction)
    a, b, slot = table.source(address, kind), table.source(block, "u32"), table.destination(target, kind)

    def step(active: Active) -> None:
        wanted = active.registers[b]
        if wanted.any():
            lane = int(np.flatnonzero(np.broadcast_to(wanted, (active.count,)))[0])
            text = f"mapa wants block {int(wanted.max())} of the cluster, which has 1 block"
            active.wave.fault(text, active, lane, instruction)
        active.registers[slot] = active.registers[a]

    return step


def decode_rank(table: SlotTable, instruction: Instruction) -> Step:
    """getctarank: the block of the cluster that an address of shared memory belongs to."""
    target, address = operand_count(instruction, 2)
    table.source(address, _address_type(instruction))
    slot = table.destination(target, "u32")
    zero = np.zeros(1, np.uint32)

    def step(active: Active) -> None:
        active.registers[slot] = zero

    return step


def _address_type(instruction: Instruction) -> str:
    space, kind = instruction.opcode[1:-1], instruction.opcode[-1]
    if space not in ((), ("shared::cluster",)) or kind not in ("u32", "u64"):
        raise Unsupported(f"instruction {instruction.text}")
    return kind
