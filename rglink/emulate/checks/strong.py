"""Strong operations and fences: who releases, who acquires.

A release is a releasing write, or a fence followed by a strong write; an acquire is an acquiring read, or a strong
read followed by a fence.

Source: PTX ISA, "Memory Consistency Model": "Release and Acquire Patterns", "Observation Order", "Synchronizes".
"""

from __future__ import annotations

import numpy as np

from rglink.emulate.checks.meaning import Meaning
from rglink.emulate.checks.order import Order
from rglink.emulate.checks.releases import NOTHING, Knowledge, joined_knowledge
from rglink.emulate.checks.touch import Touch
from rglink.emulate.frames import Active, Lanes
from rglink.emulate.wave import Wave

GLOBAL_SPACE, SHARED_SPACE = -1, 0
Snapshot = tuple[int, int, Knowledge]


class StrongCheck:
    """Feeds `order.releases` with the strong operations of a launch."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.narrow, self.wide = Fences(0), Fences(0)
        self.fenced = False
        self.pending: dict[int, Knowledge] = {}

    def begin_wave(self, wave: Wave) -> None:
        """Threads of earlier waves fence no more."""
        self.narrow, self.wide = Fences(wave.lanes), Fences(wave.lanes)
        self.fenced, self.pending = False, {}

    def fence(self, active: Active, meaning: Meaning) -> None:
        """Threads fence: earlier strong reads acquire, later strong writes release."""
        order = self.order
        order.tick()
        numbers = order.numbers[active.lanes]
        if meaning.acquires and self.pending:
            for number in numbers.tolist():
                news = self.pending.pop(number, None)
                if news:
                    order.releases.learn(number, news)
        if meaning.releases:
            self.fenced = True
            for fences in (self.narrow, self.wide) if meaning.wide else (self.narrow,):
                fences.note(active.lanes, order)

    def access(self, kind: str, touch: Touch, meaning: Meaning) -> None:
        """A strong load ("load"), store ("store") or read-modify-write."""
        releases = self.order.releases
        if kind == "load":
            if not releases.used:
                return
        elif not (meaning.releases or self.fenced or releases.used):
            return
        active, order = touch.active, self.order
        at = np.broadcast_to(touch.at, (active.count,)).tolist()
        space = GLOBAL_SPACE if touch.region == "global" else SHARED_SPACE
        numbers = order.numbers[active.lanes].tolist()
        for lane, number, offset in zip(active.lanes.tolist(), numbers, at, strict=True):
            place = (space, offset)
            if kind != "store" and releases.used:
                self._read(place, number, meaning)
            if kind != "load":
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
        releases = self.order.releases
        if meaning.releases:
            releases.release(place, number, meaning.wide, self.order.now, self.order.snapshot(lane))
            return
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


class Fences:
    """The last fence of each lane of a wave: when (0: never), and what a release then passes on."""

    def __init__(self, lanes: int) -> None:
        self.times = np.zeros(lanes, np.int64)
        self.block_floors = np.zeros(lanes, np.int64)
        self.warp_floors = np.zeros(lanes, np.int64)
        self.known: dict[int, Knowledge] = {}

    def note(self, lanes: Lanes, order: Order) -> None:
        """The lanes fence now."""
        self.times[lanes] = order.now
        self.block_floors[lanes] = order.block_floor[lanes // order.wave.block_lanes]
        self.warp_floors[lanes] = order.warp_floor[lanes]
        if order.releases.used:
            for lane, number in zip(lanes.tolist(), order.numbers[lanes].tolist(), strict=True):
                knowledge = order.releases.knowledge(number)
                if knowledge:
                    self.known[lane] = knowledge

    def of(self, lane: int) -> tuple[int, Snapshot]:
        """(time, what is passed on) of a lane."""
        known = self.known.get(lane, NOTHING)
        return int(self.times[lane]), (int(self.block_floors[lane]), int(self.warp_floors[lane]), known)
