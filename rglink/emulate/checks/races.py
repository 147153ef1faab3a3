"""Data races: two accesses of one place by threads that nothing orders, at least one a write, not both strong.

Each region of memory has shadow entries; an access is compared with the entries it meets, as vectors. Only suspects
are looked at by what the threads know of each other. Kept are the last weak and the last strong write, and two
readers of each granule, so of many earlier accesses one may hide another; a race that is reported is one.

Writes of equal values by plain stores are left out: threads that set one flag do no harm.

Source: PTX ISA, "Memory Consistency Model": "Conflict and Data-races", "Morally strong operations".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rglink.emulate.checks.findings import Findings
from rglink.emulate.checks.meaning import Meaning, Meanings
from rglink.emulate.checks.order import THREAD_MASK, TIME_SHIFT, Order
from rglink.emulate.checks.shadow import NARROW_BIT, STRONG_BITS, WIDE_BIT, Entries, Index, Shadow
from rglink.emulate.checks.touch import Touch
from rglink.emulate.checks.values import StoredValues
from rglink.emulate.frames import Lanes
from rglink.emulate.ptx import Instruction
from rglink.emulate.wave import Wave


class RaceCheck:
    """Watches the global and shared memory of one launch."""

    def __init__(self, order: Order, findings: Findings, values: StoredValues) -> None:
        self.order, self.findings, self.values = order, findings, values
        self.meanings = Meanings()
        self.regions: dict[str, Shadow] = {}
        self.events: list[Instruction | None] = [None]
        self.narrow_used = False

    def begin_wave(self, wave: Wave) -> None:
        """Shared memory is fresh; global memory keeps what earlier waves did."""
        size = wave.blocks * wave.spaces.shared_stride
        self.regions["shared"] = Shadow(size)
        if "global" not in self.regions:
            self.regions["global"] = Shadow(wave.arena.used)

    def shadow(self, touch: Touch) -> Shadow:
        """The entries that a touch falls into, fine and many enough."""
        shadow = self.regions[touch.region]
        if touch.region == "global" and touch.active.wave.arena.used > shadow.size:
            shadow.grow(len(touch.active.wave.arena.bytes))
        shadow.refine(touch.size)
        return shadow

    def tick(self, instruction: Instruction) -> int:
        """The time of an access by `instruction`."""
        now = self.order.tick()
        self.events.extend([None] * (now - len(self.events)))
        self.events.append(instruction)
        return now

    def access(self, kind: str, touch: Touch, instruction: Instruction) -> None:
        """Check one access of memory and remember it."""
        meaning = self.meanings.of(instruction)
        shadow = self.shadow(touch)
        index, each = shadow.index(touch)
        now = self.tick(instruction) << TIME_SHIFT
        numbers = self.order.numbers if touch.active.full else self.order.numbers[touch.active.lanes]
        mine = numbers | now
        if each > 1 and not touch.uniform:
            mine = np.repeat(mine, each)
        scene = Scene(touch, instruction, shadow, index, each, mine)
        if kind == "load":
            self._read(scene, meaning)
        elif kind == "store":
            self._write(scene, meaning)
        else:
            self._write(scene, meaning, reads=True)

    def _read(self, scene: Scene, meaning: Meaning) -> None:
        self._compare(scene, "writes", "write")
        if not meaning.strong or self.narrow_used:
            self._compare(scene, "strong", "atomic write", meaning)
        mine = scene.mine
        if meaning.strong:
            mine = mine | (WIDE_BIT if meaning.wide else NARROW_BIT)
        self._remember_readers(scene, mine)

    def _remember_readers(self, scene: Scene, mine: Entries) -> None:
        shadow, index = scene.shadow, scene.index
        if scene.touch.uniform:
            shadow.second_readers()[index] = mine[0]
            shadow.reads[index] = mine[-1]
            shadow.last["reads"] = shadow.last["others"] = self.order.now
            return
        settled = self._settled(scene.touch)
        if shadow.last["reads"] > settled:
            before, least = shadow.reads[index], (settled + 1) << TIME_SHIFT
            if (
                int(before.max()) >= least
                and (changed := (before >= least) & (((before ^ mine) & THREAD_MASK) != 0)).any()
            ):
                others = shadow.second_readers()
                others[index] = np.where(changed, before, others[index])
                shadow.last["others"] = shadow.last["reads"]
        shadow.reads[index] = mine
        shadow.last["reads"] = self.order.now
        if isinstance(index, slice):
            return
        lost = shadow.reads.take(index) != mine
        if lost.any():  # Several lanes at one place: keep the first as well as the last.
            shadow.second_readers()[index[lost][::-1]] = mine[lost][::-1]
            shadow.last["others"] = self.order.now

    def _write(self, scene: Scene, meaning: Meaning, reads: bool = False) -> None:
        scene.expand()
        shadow, index, mine = scene.shadow, scene.index, scene.mine
        self._compare(scene, "writes", "write")
        self._compare(scene, "reads", "read", meaning)
        self._compare(scene, "others", "read", meaning)
        if meaning.strong:
            entries = shadow.strong_writes()
            if not meaning.wide and scene.touch.region == "global":
                self.narrow_used = True
            if self.narrow_used:
                self._compare(scene, "strong", "atomic write", meaning)
            entries[index] = mine | (WIDE_BIT if meaning.wide else NARROW_BIT)
            shadow.last["strong"] = self.order.now
            if self.narrow_used and not isinstance(index, slice):
                self._compare_scopes(scene, entries[index], meaning)
            return
        self._compare(scene, "strong", "atomic write", meaning)
        shadow.writes[index] = mine
        shadow.last["writes"] = self.order.now
        if not isinstance(index, slice):
            self._compare_lanes(scene, shadow.writes[index])

    def _compare(self, scene: Scene, name: str, what: str, meaning: Meaning | None = None) -> None:
        """Report which entries called `name` may race with the access; `meaning` decides about strong ones."""
        shadow = scene.shadow
        settled = self._settled(scene.touch)
        if shadow.last[name] <= settled:
            return
        entries: Entries = getattr(shadow, name)
        found = entries[scene.index]
        if int(found.max()) < (settled + 1) << TIME_SHIFT:
            return
        if scene.touch.uniform and not scene.expanded:
            for one in np.unique(found[found != 0]).tolist():
                self._suspect(scene, np.full(len(scene.mine), one), what, meaning)
        else:
            self._suspect(scene, found, what, meaning)

    def _settled(self, touch: Touch) -> int:
        """Up to this time accesses of the touched region are known to all who can reach them."""
        return self.order.least_floor if touch.region == "shared" else 0

    def _suspect(self, scene: Scene, found: Entries, what: str, meaning: Meaning | None) -> None:
        suspects = ((found ^ scene.mine) & THREAD_MASK != 0) & (found != 0)
        if scene.touch.region == "shared":
            suspects &= found >= (self._settled(scene.touch) + 1) << TIME_SHIFT
        if not suspects.any():
            return
        places = np.flatnonzero(suspects)
        entries = found[places]
        lanes = scene.lanes(places)
        bad = self.order.unordered(entries, lanes)
        if meaning is not None and meaning.strong:
            bad &= ~self._morally_strong(entries, lanes, meaning)
        if bad.any():
            self._report(scene, places[bad], entries[bad], what)

    def _morally_strong(self, entries: Entries, lanes: Lanes, meaning: Meaning) -> NDArray[np.bool_]:
        """Which strong entries and the strong access at hand include each other in their scopes."""
        wave = self.order.wave
        near = ((entries & THREAD_MASK) - 1) // self.order.threads == lanes // wave.block_lanes + wave.first_block
        wide = (entries & WIDE_BIT != 0) & meaning.wide
        both: NDArray[np.bool_] = (entries & STRONG_BITS != 0) & (near | wide)
        return both

    def _compare_lanes(self, scene: Scene, written: Entries) -> None:
        """Lanes of one store that met at one place: all but the last find somebody else's entry there."""
        lost = np.flatnonzero(written != scene.mine)
        if not len(lost):
            return
        entries = written[lost]
        other = entries & THREAD_MASK != scene.mine[lost] & THREAD_MASK
        if other.any():
            self._report(scene, lost[other], entries[other], "write", same=True)

    def _compare_scopes(self, scene: Scene, written: Entries, meaning: Meaning) -> None:
        """Lanes of one atomic that met at one place: those of other blocks need a wide scope."""
        met = np.flatnonzero((written ^ scene.mine) & THREAD_MASK)
        if len(met):
            bad = ~self._morally_strong(written[met], scene.lanes(met), meaning)
            if bad.any():
                self._report(scene, met[bad], written[met[bad]], "atomic write")

    def _report(self, scene: Scene, places: Lanes, entries: Entries, what: str, same: bool = False) -> None:
        if what == "write" and scene.instruction.opcode[0] == "st":
            differ = self._values_differ(scene, places, entries if same else None)
            places, entries = places[differ], entries[differ]
            if not len(places):
                return
        event = self.events[int(entries[0]) >> TIME_SHIFT]
        lane = int(scene.lanes(places[:1])[0])
        self.findings.race(scene.touch, scene.offset(int(places[0])), scene.instruction, lane, event, int(entries[0]))

    def _values_differ(self, scene: Scene, places: Lanes, entries: Entries | None) -> NDArray[np.bool_]:
        """Which of the places get another value than they hold, or than the lane that wrote last (`entries`) gives."""
        touch = scene.touch
        values = self.values.stored(touch.active, scene.instruction, touch.size)
        if values is None:
            return np.ones(len(places), np.bool_)
        width = min(touch.size, 1 << scene.shadow.shift)
        granules = values.reshape(-1, width)
        new = granules[places]
        if entries is not None:
            ordered = np.argsort(scene.mine, kind="stable")
            where = np.searchsorted(scene.mine, entries, sorter=ordered)
            writers = ordered[where]
            if scene.each > 1:
                writers = writers // scene.each * scene.each + places % scene.each
            return np.asarray((granules[writers] != new).any(axis=1))
        spaces = touch.active.wave.spaces
        memory = spaces.arena.bytes if touch.region == "global" else spaces.shared[1]
        at = np.array([scene.offset(int(place)) for place in places.tolist()])
        old = memory[at[:, None] + np.arange(width)]
        return np.asarray((old != new).any(axis=1))


class Scene:
    """One access at hand: where its granules are, and the entry that each of them would get."""

    __slots__ = ("each", "expanded", "index", "instruction", "mine", "shadow", "touch")

    def __init__(
        self, touch: Touch, instruction: Instruction, shadow: Shadow, index: Index, each: int, mine: Entries
    ) -> None:
        self.touch, self.instruction, self.shadow = touch, instruction, shadow
        self.index, self.each, self.mine = index, each, mine
        self.expanded = False

    def expand(self) -> None:
        """Turn one offset that all lanes share into one for each."""
        if self.touch.uniform:
            self.expanded = True
            granules = np.arange(self.index.start, self.index.stop) if isinstance(self.index, slice) else self.index
            self.index = np.tile(granules, self.touch.active.count)
            self.mine = np.repeat(self.mine, self.each) if self.each > 1 else self.mine

    def lanes(self, places: Lanes) -> Lanes:
        """The lanes at places of `mine`."""
        each = self.each if len(self.mine) != self.touch.active.count else 1
        return self.touch.active.lanes[places // each]

    def offset(self, place: int) -> int:
        """The byte offset in the region of a place of `mine`."""
        if isinstance(self.index, slice):
            length = self.index.stop - self.index.start
            return int(self.index.start + place % length) << self.shadow.shift
        return int(self.index[place]) << self.shadow.shift
