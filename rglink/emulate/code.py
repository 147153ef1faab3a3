"""A function as the machine runs it: slots for its registers, what is live where, and the places where runs end.

Source of the liveness analysis: the standard backward data flow over basic blocks, on bit sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from rglink.emulate.frames import Active, Group, Vector

if TYPE_CHECKING:
    from rglink.emulate.control import CallSite

# What an instruction does to the registers of the lanes it runs for.
Step = Callable[[Active], None]
# What ends a run: returns whether the group goes on (its `pc` says where).
Control = Callable[[Group], bool]


@dataclass(frozen=True)
class Exchange:
    """What a `.sync` instruction of a warp does: the slots of its mask, operands and results, and the computation.

    `anywhere` says that it may be completed by lanes at other instructions with the same opcode.
    """

    mask: int
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    compute: Callable[[Group, Vector], None]
    anywhere: bool


@dataclass
class Flow:
    """What one instruction reads and writes (bit sets of slots), and where control goes after it.

    `kills` are the slots it overwrites for every lane. `targets` are the places it may jump to; `falls` says
    whether it may go on with the next instruction.
    """

    reads: int = 0
    kills: int = 0
    targets: tuple[int, ...] = ()
    falls: bool = True


@dataclass
class Code:
    """One function of one kernel's image.

    `template` holds a fresh frame: constants in their slots, zeros in registers that may be read before they are
    written. Of each instruction either `steps` or `controls` has an entry. `number` orders functions.
    """

    name: str
    number: int
    template: list[Vector] = field(default_factory=list)
    steps: list[Step | None] = field(default_factory=list)
    controls: list[Control | None] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    locs: list[tuple[str, int] | None] = field(default_factory=list)
    exchanges: dict[int, Exchange] = field(default_factory=dict)
    local_bytes: int = 0
    # (offset in local memory, bytes, slot) of parameters that live in memory because their addresses are taken.
    spills: list[tuple[int, int, int]] = field(default_factory=list)
    calls: dict[int, CallSite] = field(default_factory=dict)
    runs: dict[int, tuple[tuple[Step, ...], int, Control | None]] = field(default_factory=dict)
    joins: frozenset[int] = frozenset()
    live: list[int] = field(default_factory=list)
    live_lists: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def run_from(self, pc: int) -> tuple[tuple[Step, ...], int, Control | None]:
        """The steps from `pc` on, where they end, and the control there.

        A run also ends, without a control, where branches lead to: lanes that came another way may wait there.
        """
        found = self.runs.get(pc)
        if found is None:
            end = pc
            while self.controls[end] is None and (end == pc or end not in self.joins):
                end += 1
            control = self.controls[end] if end == pc or end not in self.joins else None
            found = (tuple(step for step in self.steps[pc:end] if step is not None), end, control)
            self.runs[pc] = found
        return found

    def first_steps(self, pc: int, count: int) -> tuple[tuple[Step, ...], int, None]:
        """Only the first `count` instructions of straight code."""
        return tuple(step for step in self.steps[pc : pc + count] if step is not None), pc + count, None

    def live_at(self, pc: int) -> tuple[int, ...]:
        """The slots whose values may still be read when `pc` comes next."""
        found = self.live_lists.get(pc)
        if found is None:
            slots = self.live[pc]
            exchange = self.exchanges.get(pc)
            if exchange is not None:  # Lanes may wait there with operands that were computed before.
                for slot in (exchange.mask, *exchange.sources):
                    slots |= 1 << slot
            found = tuple(_members(slots))
            self.live_lists[pc] = found
        return found

    def finish(self, registers: Mapping[int, np.dtype[np.generic]]) -> None:
        """Find what is live; give zeros to registers that may be read unwritten."""
        self.live = _liveness(self.flows)
        self.joins = frozenset(target for flow in self.flows for target in flow.targets)
        kept = 0
        for slot in registers:
            kept |= 1 << slot
        self.live = [live & kept for live in self.live]
        for slot in _members(self.live[0]):
            self.template[slot] = np.zeros(1, registers[slot])


def _liveness(flows: list[Flow]) -> list[int]:
    """The slots live before each instruction."""
    count = len(flows)
    live = [0] * (count + 1)
    starts = {0, count}
    for at, flow in enumerate(flows):
        starts.update(flow.targets)
        if flow.targets or not flow.falls:
            starts.add(at + 1)
    ordered = sorted(starts)
    blocks = list(pairwise(ordered))
    changed = True
    while changed:
        changed = False
        for start, end in reversed(blocks):
            before = live[start]
            for at in range(end - 1, start - 1, -1):
                flow = flows[at]
                after = live[at + 1] if flow.falls else 0
                for target in flow.targets:
                    after |= live[target]
                live[at] = (after & ~flow.kills) | flow.reads
            changed = changed or live[start] != before
    return live[:count]


def _members(bits: int) -> list[int]:
    found = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found
