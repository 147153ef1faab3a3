"""Lanes that run together, and the frames below them.

A `Group` is a set of lanes at one place of the program with equal stacks of calls. It owns its registers as dense
vectors over its own lanes, so straight code needs no index arrays; only a split or a meeting of groups gathers, and
then only the registers that are still live. A vector of one element is a value that all lanes of the group share.

Vectors are never changed in place: every instruction makes new ones, so that they may be shared freely.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from rglink.emulate.code import Code
    from rglink.emulate.wave import Wave

Lanes = NDArray[np.int64]
# A register: bool for predicates, else bit patterns; one element for all lanes, or one for each.
Vector = NDArray[Any]
Registers = list[Vector]


@dataclass(frozen=True, slots=True)
class Frame:
    """A caller that waits: its registers over the lanes it had at the call, and where to go on.

    `select[i]` is the place of the group's lane i in those vectors; None when they are the same lanes. `path`
    numbers the chain of calls: equal paths, equal stacks. `stack` is the end of its local memory, in bytes. `live` are
    the slots that hold something it will still read, the results of the call left out.
    """

    code: Code
    pc: int
    registers: Registers
    live: tuple[int, ...]
    lanes: int
    select: Lanes | None
    below: Frame | None
    path: int
    depth: int
    stack: int


class Active:
    """The lanes that one instruction runs for, with what memory needs to know of them.

    `full` says that they are all lanes of the wave in order; `stack` is where the function's local memory begins;
    `waits` counts instructions that read what another thread may be about to write.
    """

    __slots__ = ("_blocks", "count", "full", "lanes", "registers", "stack", "waits", "wave")

    def __init__(self, wave: Wave, lanes: Lanes, full: bool, registers: Registers, stack: int = 0) -> None:
        self.wave, self.lanes, self.count, self.full = wave, lanes, len(lanes), full
        self.registers, self.stack = registers, stack
        self._blocks: Lanes | None = None
        self.waits = 0

    @property
    def blocks(self) -> Lanes:
        """The block of each lane, counted within the wave; one element if there is one block."""
        if self._blocks is None:
            wave = self.wave
            self._blocks = wave.block_of if self.full or len(wave.block_of) == 1 else wave.block_of[self.lanes]
        return self._blocks

    def subset(self, index: Lanes, slots: Sequence[int]) -> Active:
        """The lanes at `index`; of their registers only those in `slots` are cut to them."""
        registers = self.registers.copy()
        for slot in slots:
            value = registers[slot]
            registers[slot] = value if len(value) == 1 else value.take(index)
        return Active(self.wave, self.lanes[index], False, registers, self.stack)


class Group(Active):
    """Lanes at one place.

    `patience` counts how often the group stood back for others, `spins` its back edges since; `steps` the
    instructions that its longest-running lane has executed.
    """

    __slots__ = ("code", "frame", "path", "patience", "pc", "spins", "steps")

    def __init__(self, wave: Wave, lanes: Lanes, full: bool, code: Code, registers: Registers) -> None:
        super().__init__(wave, lanes, full, registers)
        self.code, self.pc = code, 0
        self.frame: Frame | None = None
        self.path = 0
        self.patience = self.spins = self.steps = 0

    @property
    def depth(self) -> int:
        return 0 if self.frame is None else self.frame.depth

    def part(self, index: Lanes, live: Sequence[int]) -> Group:
        """A group of the lanes at `index` at the same place, with the registers `live`."""
        found = Group(self.wave, self.lanes[index], False, self.code, selected(self.code, self.registers, index, live))
        found.pc, found.path, found.stack = self.pc, self.path, self.stack
        found.patience, found.spins, found.waits, found.steps = self.patience, self.spins, self.waits, self.steps
        if self.frame is not None:
            found.frame = _narrowed(self.frame, index)
        return found


def selected(code: Code, registers: Registers, index: Lanes, live: Sequence[int]) -> Registers:
    """Fresh registers holding the elements at `index` of those that are `live`."""
    fresh = code.template.copy()
    for slot in live:
        value = registers[slot]
        fresh[slot] = value if len(value) == 1 else value.take(index)
    return fresh


def _narrowed(frame: Frame, index: Lanes) -> Frame:
    select = index if frame.select is None else frame.select[index]
    return _with(frame, frame.registers, frame.lanes, select, frame.below)


def _with(frame: Frame, registers: Registers, lanes: int, select: Lanes | None, below: Frame | None) -> Frame:
    return Frame(
        frame.code, frame.pc, registers, frame.live, lanes, select, below, frame.path, frame.depth, frame.stack
    )


def returned(group: Group, frame: Frame) -> Registers:
    """The registers of the caller for the lanes of `group`, which come back from `frame`."""
    if frame.select is None:
        return frame.registers
    return selected(frame.code, frame.registers, frame.select, frame.live)


def frame_below(frame: Frame) -> Frame | None:
    """The caller's own caller, for the lanes that come back from `frame`."""
    if frame.below is None or frame.select is None:
        return frame.below
    return _narrowed(frame.below, frame.select)


def joined(groups: Sequence[Group]) -> Group:
    """One group of the lanes of several that stand at one place with equal stacks."""
    first = groups[0]
    if len(groups) == 1:
        return first
    lanes = np.concatenate([group.lanes for group in groups])
    order = np.argsort(lanes, kind="stable")
    live = first.code.live_at(first.pc)
    sizes = [group.count for group in groups]
    registers = first.code.template.copy()
    for slot in live:
        registers[slot] = _joined_vectors([group.registers[slot] for group in groups], sizes, order)
    found = Group(first.wave, lanes[order], len(lanes) == first.wave.lanes, first.code, registers)
    found.pc, found.path, found.stack = first.pc, first.path, first.stack
    found.patience = max(group.patience for group in groups)
    found.spins = max(group.spins for group in groups)
    found.waits = max(group.waits for group in groups)
    found.steps = max(group.steps for group in groups)
    if first.frame is not None:
        frames = [group.frame for group in groups if group.frame is not None]
        found.frame = _joined_frames(frames, sizes, order)
    return found


def _joined_vectors(parts: Sequence[Vector], sizes: Sequence[int], order: Lanes | None) -> Vector:
    head = parts[0]
    if len(head) == 1 and all(part is head or (len(part) == 1 and part[0] == head[0]) for part in parts):
        return head
    spread = [np.broadcast_to(part, (size,)) for part, size in zip(parts, sizes, strict=True)]
    vector = np.concatenate(spread)
    return vector if order is None else vector.take(order)


def _joined_frames(frames: Sequence[Frame], sizes: Sequence[int], order: Lanes) -> Frame:
    """One frame for lanes that are concatenated from those of `frames` and then taken in `order`."""
    first = frames[0]
    if all(frame.registers is first.registers for frame in frames):
        selects = _selects(frames, sizes, [0] * len(frames))
        return _with(first, first.registers, first.lanes, np.concatenate(selects)[order], first.below)
    if sum(frame.lanes for frame in frames) > len(order):
        # Lanes that are not among these would be joined again at every meeting, twice as many each time.
        frames = [_without_others(frame, size) for frame, size in zip(frames, sizes, strict=True)]
    counts = [frame.lanes for frame in frames]
    starts = [sum(counts[:at]) for at in range(len(counts))]
    registers = first.code.template.copy()
    for slot in first.live:
        registers[slot] = _joined_vectors([frame.registers[slot] for frame in frames], counts, None)
    below = None
    if first.below is not None:
        belows = [frame.below for frame in frames if frame.below is not None]
        below = _joined_frames(belows, counts, np.arange(sum(counts)))
    select = np.concatenate(_selects(frames, sizes, starts))[order]
    return _with(first, registers, sum(counts), select, below)


def _without_others(frame: Frame, size: int) -> Frame:
    """The frame for the `size` lanes of its group alone."""
    if frame.select is None:
        return frame
    registers = selected(frame.code, frame.registers, frame.select, frame.live)
    return _with(frame, registers, size, None, frame_below(frame))


def _selects(frames: Sequence[Frame], sizes: Sequence[int], starts: Iterable[int]) -> list[Lanes]:
    return [
        (np.arange(size) if frame.select is None else frame.select) + start
        for frame, size, start in zip(frames, sizes, starts, strict=True)
    ]
