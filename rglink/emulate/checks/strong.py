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
from rglink.emulate.frames import Active
from rglink.emulate.wave import Wave

GLOBAL_SPACE, SHARED_SPACE = -1, 0
Snapshot = tuple[int, int, Knowledge]


class StrongCheck:
    """Feeds `order.releases` with the strong operations of a launch."""

    def __init__(self, order: Order) -> None:
        self.order = order
        # Per thread: its last fence, (time, wide, snapshot); of narrow fences after a wide one both are kept.
        self.fences: dict[int, dict[bool, tuple[int, Snapshot]]] = {}
        self.pending: dict[int, Knowledge] = {}

    def begin_wave(self, wave: Wave) -> None:
        """Threads of earlier waves fence no more."""
        self.fences, self.pending = {}, {}

    def fence(self, active: Active, meaning: Meaning) -> None:
        """Threads fence: earlier strong reads acquire, later strong writes release."""
        order = self.order
        now = order.tick()
        numbers = order.numbers[active.lanes]
        if meaning.acquires and self.pending:
            for number in numbers.tolist():
                news = self.pending.pop(number, None)
                if news:
                    order.releases.learn(number, news)
        if meaning.releases:
            for number, lane in zip(numbers.tolist(), active.lanes.tolist(), strict=True):
                mine = self.fences.setdefault(number, {})
                mine[False] = (now, order.snapshot(lane))
                if meaning.wide:
                    mine[True] = mine[False]

    def access(self, kind: str, touch: Touch, meaning: Meaning) -> None:
        """A strong load ("load"), store ("store") or read-modify-write."""
        releases = self.order.releases
        if kind == "load":
            if not releases.used:
                return
        elif not (meaning.releases or self.fences or releases.used):
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
        fences = self.fences.get(number)
        if fences is None:
            if hides:
                releases.overwrite(place, (number - 1) // releases.threads)
            return
        # A fence of block scope reaches the block only, one of wide scope others if the write does too.
        time, snapshot = fences[False]
        releases.release(place, number, False, time, snapshot)
        if meaning.wide and True in fences:
            time, snapshot = fences[True]
            releases.release_to_all(place, number, time, snapshot)
        elif hides:
            releases.hide_from_all(place)
