"""Asynchronous copies (cp.async): their targets may not be touched before the thread that issued them has waited.

Source: PTX ISA, "Asynchronous Data Copies", "Async Groups". Bulk copies, which signal an mbarrier, are taken for
writes of the thread that issues them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rglink.emulate.checks.findings import Findings, access_text
from rglink.emulate.checks.order import THREAD_MASK, TIME_SHIFT, Order
from rglink.emulate.checks.races import RaceCheck
from rglink.emulate.checks.reports import place_of
from rglink.emulate.checks.shadow import Entries, spread
from rglink.emulate.checks.touch import Touch
from rglink.emulate.frames import Active, Lanes
from rglink.emulate.ptx import Immediate, Instruction
from rglink.emulate.wave import Wave

OPEN = 1 << 40  # Not committed yet.
WORD = 4


@dataclass
class Issued:
    """One cp.async by its words of 4 bytes: their lanes, byte offsets and entries, and the groups they belong to."""

    instruction: Instruction
    lanes: Lanes
    offsets: NDArray[np.int64]
    entries: Entries
    groups: NDArray[np.int64]

    def part(self, which: NDArray[np.bool_]) -> Issued:
        """Some of its words."""
        return Issued(self.instruction, self.lanes[which], self.offsets[which], self.entries[which], self.groups[which])


class CopyCheck:
    """The copies of a wave that are under way."""

    def __init__(self, order: Order, findings: Findings, races: RaceCheck) -> None:
        self.order, self.findings, self.races = order, findings, races
        self.issued: list[Issued] = []

    def begin_wave(self, wave: Wave) -> None:
        """No copies are under way."""
        self.issued = []
        self.committed = np.zeros(wave.lanes, np.int64)

    def start(self, touch: Touch, instruction: Instruction) -> None:
        """A copy to shared memory begins; its write was noted."""
        count, words = touch.active.count, touch.size // WORD
        entries = np.repeat(self.order.numbers[touch.active.lanes] | (self.order.now << TIME_SHIFT), words)
        offsets = spread(np.broadcast_to(touch.at, (count,)) // WORD, words) * WORD
        lanes = np.repeat(touch.active.lanes, words)
        issued = Issued(instruction, lanes, offsets, entries, np.full(len(lanes), OPEN))
        index, each = self._granules(issued)
        self.races.regions["shared"].pending_copies()[index] = np.repeat(entries, each)
        self.issued.append(issued)

    def _granules(self, issued: Issued) -> tuple[NDArray[np.int64], int]:
        """The granules of its words, and how many each word has."""
        shift = self.races.regions["shared"].shift
        each = WORD >> shift
        return spread(issued.offsets >> shift, each), each

    def touch(self, touch: Touch, instruction: Instruction) -> None:
        """Report an access of the target of a copy that is under way."""
        shadow = self.races.regions["shared"]
        if not self.issued or shadow.copies is None or touch.region != "shared":
            return
        index, each = self.races.shadow(touch).index(touch)
        found = shadow.copies[index]
        if not found.any() or not self.findings.new("async-copy", id(instruction)):
            return
        place = int(np.flatnonzero(found)[0])
        lane = int(touch.active.lanes[0 if touch.uniform else place // each])
        entry = int(found[place])
        copy = self.races.events[entry >> TIME_SHIFT]
        assert copy is not None
        here = place_of(access_text(instruction), instruction, self.order.wave.position(lane))
        there = place_of("cp.async that is under way", copy, self.findings.position(entry & THREAD_MASK))
        message = "shared memory is accessed while an asynchronous copy to it is under way"
        self.findings.pair("async-copy", message, (here, there), id(instruction))

    def wait(self, active: Active, instruction: Instruction) -> None:
        """commit_group, wait_group N, wait_all."""
        if "bulk" in instruction.opcode:
            return
        here = np.zeros(self.order.wave.lanes, np.bool_)
        here[active.lanes] = True
        what = instruction.opcode[2]
        if what == "commit_group":
            for issued in self.issued:
                open_ones = here[issued.lanes] & (issued.groups == OPEN)
                issued.groups[open_ones] = self.committed[issued.lanes[open_ones]]
            self.committed[active.lanes] += 1
            return
        if what == "wait_all":
            self._finish(here, None)
        elif isinstance(instruction.operands[0], Immediate):
            self._finish(here, instruction.operands[0].value)

    def hand_over(self, lanes: Lanes) -> None:
        """The copies that the lanes have issued are signalled to an mbarrier: who waits for that may use them."""
        here = np.zeros(self.order.wave.lanes, np.bool_)
        here[lanes] = True
        self._finish(here, None)

    def _finish(self, here: NDArray[np.bool_], left: int | None) -> None:
        """End the copies of lanes that are `here`, but for the `left` latest groups (None: all, committed or not)."""
        kept: list[Issued] = []
        for issued in self.issued:
            done = here[issued.lanes]
            if left is not None:
                done &= issued.groups < self.committed[issued.lanes] - left
            if done.any():
                self._complete(issued.part(done))
            if not done.all():
                kept.append(issued.part(~done))
        self.issued = kept

    def _complete(self, issued: Issued) -> None:
        """What was copied counts as written now, by the thread that waited."""
        shadow = self.races.regions["shared"]
        copies = shadow.pending_copies()
        now = self.races.tick(issued.instruction) << TIME_SHIFT
        index, each = self._granules(issued)
        entries = np.repeat(issued.entries, each)
        current = copies[index] == entries
        index, entries = index[current], entries[current]
        copies[index] = 0
        shadow.writes[index] = (entries & THREAD_MASK) | now
        shadow.last["writes"] = self.order.now
