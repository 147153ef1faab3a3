"""Strong operations and fences: who releases, who acquires.

A release is a releasing write, or a fence followed by a strong write; an acquire is an acquiring read, or a strong
read followed by a fence.

Source: PTX ISA, "Memory Consistency Model": "Release and Acquire Patterns", "Observation Order", "Synchronizes".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rglink.emulate.checks.meaning import Meaning
from rglink.emulate.checks.order import Order
from rglink.emulate.checks.releases import NOTHING, Knowledge, Releases, joined_knowledge
from rglink.emulate.checks.touch import Touch
from rglink.emulate.frames import Active, Lanes
from rglink.emulate.wave import Wave

GLOBAL_SPACE, SHARED_SPACE = -1, 0
Snapshot = tuple[int, int, Knowledge]


class StrongCheck:
    """Feeds `order.releases` with the strong operations of a launch."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.fenced = False
        self._forget(0)

    def begin_wave(self, wave: Wave) -> None:
        """Threads of earlier waves fence no more."""
        self.fenced = False
        self.order.releases.defer(0, partial(self._forget, wave.lanes))

    def _forget(self, lanes: int) -> None:
        self.narrow, self.wide = Fences(lanes), Fences(lanes)
        self.pending: dict[int, Knowledge] = {}

    def fence(self, active: Active, meaning: Meaning) -> None:
        """Threads fence: earlier strong reads acquire, later strong writes release."""
        order = self.order
        order.tick()
        who = Performers.of(active, order)
        if meaning.releases:
            self.fenced = True
        order.releases.defer(active.count, partial(self._fence, who, meaning))

    def _fence(self, who: Performers, meaning: Meaning) -> None:
        releases = self.order.releases
        if meaning.acquires and self.pending:
            for number in who.numbers.tolist():
                news = self.pending.pop(number, None)
                if news:
                    releases.learn(number, news)
        if meaning.releases:
            for fences in (self.narrow, self.wide) if meaning.wide else (self.narrow,):
                fences.note(who, releases)

    def access(self, kind: str, touch: Touch, meaning: Meaning) -> None:
        """A strong load ("load"), store ("store") or read-modify-write."""
        releases = self.order.releases
        if kind != "load" and (meaning.releases or self.fenced):
            releases.used = True
        if not releases.used:
            return
        active = touch.active
        # Addresses may be those of a register, which will change.
        at = np.array(np.broadcast_to(touch.at, (active.count,)))
        space = GLOBAL_SPACE if touch.region == "global" else SHARED_SPACE
        who = Performers.of(active, self.order)
        releases.defer(active.count, partial(self._access, kind, space, at, who, meaning))

    def _access(self, kind: str, space: int, at: NDArray[np.int64], who: Performers, meaning: Meaning) -> None:
        for index, (lane, number, offset) in enumerate(
            zip(who.lanes.tolist(), who.numbers.tolist(), at.tolist(), strict=True)
        ):
            place = (space, offset)
            if kind != "store":
                self._read(place, number, meaning)
            if kind == "load":
                continue
            if meaning.releases:
                seen = int(who.block_floors[index]), int(who.warp_floors[index])
                snapshot = (*seen, self.order.releases.knowledge(number))
                self.order.releases.release(place, number, meaning.wide, who.now, snapshot)
            else:
                self._write(place, lane, number, meaning, kind == "store")

    def _read(self, place: tuple[int, int], number: int, meaning: Meaning) -> None:
        releases = self.order.releases
        news = releases.seen(*place, (number - 1) // releases.threads, meaning.wide)
        if not news:
            return
        if meaning.acquires:
            releases.learn(number, news)
        else:
            self.pending[number] = joined_knowledge(self.pending.get(number, NOTHING), news)

    def _write(self, place: tuple[int, int], lane: int, number: int, meaning: Meaning, hides: bool) -> None:
        """A write that releases only what an earlier fence of its thread covers."""
        releases = self.order.releases
        # A fence of block scope reaches the block only, one of wide scope others if the write does too.
        narrow, wide = int(self.narrow.times[lane]), int(self.wide.times[lane]) if meaning.wide else 0
        if wide:
            releases.release(place, number, True, *self.wide.of(lane))
        elif hides:
            releases.hide_from_all(place)
        if narrow > wide:
            releases.release(place, number, False, *self.narrow.of(lane))
        elif hides and not wide:
            releases.overwrite(place, (number - 1) // releases.threads)


@dataclass(frozen=True, slots=True)
class Performers:
    """The threads of a strong operation or fence: lanes in the wave, numbers in the grid; when, and what they knew."""

    lanes: Lanes
    numbers: NDArray[np.int64]
    now: int
    block_floors: NDArray[np.int64]
    warp_floors: NDArray[np.int64]

    @classmethod
    def of(cls, active: Active, order: Order) -> Performers:
        """Those of `active`, now."""
        lanes = active.lanes
        block_floors = order.block_floor[lanes // order.wave.block_lanes]
        return cls(lanes, order.numbers[lanes], order.now, block_floors, order.warp_floor[lanes])


class Fences:
    """The last fence of each lane of a wave: when (0: never), and what a release then passes on."""

    def __init__(self, lanes: int) -> None:
        self.times = np.zeros(lanes, np.int64)
        self.block_floors = np.zeros(lanes, np.int64)
        self.warp_floors = np.zeros(lanes, np.int64)
        self.known: dict[int, Knowledge] = {}

    def note(self, who: Performers, releases: Releases) -> None:
        """The lanes fence."""
        self.times[who.lanes] = who.now
        self.block_floors[who.lanes] = who.block_floors
        self.warp_floors[who.lanes] = who.warp_floors
        if releases.used:
            for lane, number in zip(who.lanes.tolist(), who.numbers.tolist(), strict=True):
                knowledge = releases.knowledge(number)
                if knowledge:
                    self.known[lane] = knowledge

    def of(self, lane: int) -> tuple[int, Snapshot]:
        """(time, what is passed on) of a lane."""
        known = self.known.get(lane, NOTHING)
        return int(self.times[lane]), (int(self.block_floors[lane]), int(self.warp_floors[lane]), known)
