"""Barriers of a block as the checks see them: who came, who went on, and whether warps came together.

Source: PTX ISA, "bar, barrier": with `.aligned` (and in every `bar`) all threads of a warp execute the same one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rglink.emulate.checks.findings import Findings
from rglink.emulate.checks.order import Order
from rglink.emulate.checks.reports import place_of
from rglink.emulate.frames import Active, Lanes
from rglink.emulate.ptx import Instruction
from rglink.emulate.wave import Wave


@dataclass
class Phase:
    """One barrier number: which instruction each lane came by (0: it has not come), and who only arrives."""

    came: NDArray[np.int32]
    passing: NDArray[np.bool_]


class BarrierCheck:
    """Tells `order` who met, and reports warps that were divided."""

    def __init__(self, order: Order, findings: Findings) -> None:
        self.order, self.findings = order, findings
        self.instructions: list[Instruction] = []
        self.numbers: dict[int, int] = {}

    def begin_wave(self, wave: Wave) -> None:
        """Nobody waits."""
        self.wave = wave
        self.phases: dict[int, Phase] = {}
        self.alone: tuple[Active, int, Instruction] | None = None

    def arrive(self, active: Active, barrier: int, instruction: Instruction) -> None:
        """Lanes come to a barrier."""
        self._settle_alone()
        if active.count == self.wave.alive_count and "arrive" not in instruction.opcode:
            self.alone = (active, barrier, instruction)
            return
        self._note(active, barrier, instruction)

    def leave(self, active: Active, barrier: int) -> None:
        """Lanes go on; the first of a block stands for all that have come to it."""
        if self.alone is not None and self.alone[0] is active:
            instruction = self.alone[2]
            self.alone = None
            blocks = np.flatnonzero(self.wave.live_in_block > 0)
            self.order.full_barrier(blocks)
            self._note_exits(blocks, instruction)
            return
        self._settle_alone()
        phase = self.phases.get(barrier)
        if phase is None:
            return
        rows = phase.came.reshape(self.wave.blocks, -1)
        blocks = np.unique(active.lanes // self.wave.block_lanes)
        met = (rows[blocks] > 0).sum(axis=1)
        blocks, met = blocks[met > 0], met[met > 0]
        if not len(blocks):
            return
        self._check_warps(phase, blocks)
        passing = phase.passing.reshape(self.wave.blocks, -1)[blocks].any(axis=1)
        full = (met == self.wave.live_in_block[blocks]) & ~passing
        if full.any():
            self.order.full_barrier(blocks[full])
            self._note_exits(blocks[full], self.instructions[int(rows[blocks[full][0]].max()) - 1])
        for block in blocks[~full].tolist():
            self._partial(phase, block)
        rows[blocks] = 0
        phase.passing.reshape(self.wave.blocks, -1)[blocks] = False

    def _settle_alone(self) -> None:
        """The group that came alone did not go on at once: note it like others."""
        if self.alone is not None:
            active, barrier, instruction = self.alone
            self.alone = None
            self._note(active, barrier, instruction)

    def _note(self, active: Active, barrier: int, instruction: Instruction) -> None:
        phase = self.phases.get(barrier)
        if phase is None:
            lanes = self.wave.lanes
            phase = self.phases[barrier] = Phase(np.zeros(lanes, np.int32), np.zeros(lanes, np.bool_))
        number = self.numbers.get(id(instruction))
        if number is None:
            self.instructions.append(instruction)
            number = self.numbers[id(instruction)] = len(self.instructions)
        phase.came[active.lanes] = number
        if "arrive" in instruction.opcode:
            phase.passing[active.lanes] = True

    def _partial(self, phase: Phase, block: int) -> None:
        size = self.wave.block_lanes
        came = (phase.came[block * size : (block + 1) * size] > 0).reshape(-1, 32).any(axis=1)
        passing = phase.passing[block * size : (block + 1) * size].reshape(-1, 32).any(axis=1)
        self.order.partial_barrier(block, np.flatnonzero(came), np.flatnonzero(came & ~passing))

    def _check_warps(self, phase: Phase, blocks: Lanes) -> None:
        """Report warps whose threads came by several instructions, of which one wants the whole warp."""
        by_warp = phase.came.reshape(self.wave.blocks, -1, 32)[blocks]
        most = by_warp.max(axis=2)
        split = ((by_warp > 0) & (by_warp != most[:, :, None])).any(axis=2)
        if not split.any():
            return
        row, warp = (int(found[0]) for found in np.nonzero(split))
        first = int(blocks[row]) * self.wave.block_lanes + 32 * warp
        places: dict[int, int] = {}
        for lane in range(first, first + 32):
            if phase.came[lane]:
                places.setdefault(int(phase.came[lane]), lane)
        chosen = [(self.instructions[number - 1], lane) for number, lane in sorted(places.items())]
        if all(_is_unaligned(one) for one, _ in chosen):
            return
        self.findings.pair(
            "divergent-barrier",
            "threads of one warp wait at different barrier instructions, which want the whole warp",
            tuple(place_of("barrier reached", one, self.wave.position(lane)) for one, lane in chosen),
            *(id(one) for one, _ in chosen),
        )

    def _note_exits(self, blocks: Lanes, instruction: Instruction) -> None:
        """Threads that ended count as having come; say so once."""
        ended = self.wave.threads - self.wave.live_in_block[blocks]
        if not ended.any() or not self.findings.new("exited-threads", id(instruction)):
            return
        at = int(np.flatnonzero(ended)[0])
        first = int(blocks[at]) * self.wave.block_lanes
        alive = np.flatnonzero(self.wave.alive[first : first + self.wave.block_lanes])
        what = f"{int(ended[at])} of {self.wave.threads} threads of the block had ended; the barrier was reached"
        place = place_of(what, instruction, self.wave.position(first + int(alive[0])))
        message = "a barrier is passed by the threads that are left, others ended before it"
        self.findings.pair("exited-threads", message, (place,), id(instruction))


def _is_unaligned(instruction: Instruction) -> bool:
    return instruction.opcode[0] == "barrier" and "aligned" not in instruction.opcode
