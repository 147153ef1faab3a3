"""A wave: the blocks of a grid that run at the same time, and the groups of lanes they consist of."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from numpy.typing import NDArray

from rglink.demangle import demangle
from rglink.emulate.errors import KernelFault
from rglink.emulate.frames import Active, Group, Lanes, Vector, joined
from rglink.emulate.lines import library_place
from rglink.emulate.memory import Arena
from rglink.emulate.observer import Observer
from rglink.emulate.ptx import Instruction, inlined_places
from rglink.emulate.spaces import Spaces

if TYPE_CHECKING:
    from rglink.emulate.cluster import ClusterBarriers
    from rglink.emulate.sync import Barriers
    from rglink.emulate.warp import WarpMeetings

Shape = tuple[int, int, int]
# (times stood back, -depth of calls, function, instruction, chain of calls)
Key = tuple[int, int, int, int, int]
# Back edges that a loop without waiting reads may take while others are ready to run.
LONG_TURN = 4096
# A random order makes no more groups than this by splitting and stopping: they would never meet again.
MOST_PARTS = 8
# Turns in which the blocks of a wave come where a random order holds some back.
MOST_TURNS = 3


@dataclass
class Budget:
    """`limit` instructions that one thread may execute; `executed` lane-instructions of all threads so far."""

    limit: int
    executed: int = 0


def key_of(group: Group) -> Key:
    return (group.patience, -group.depth, group.code.number, group.pc, group.path)


class Scheduler:
    """The groups that can run. Deepest calls first, then the lowest place, so that lanes meet again like on hardware.

    With a seed: a random group each time, groups are split at random, and with every other seed or so some blocks are
    held back until those before them have ended or wait: the order that a grid larger than the device brings.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.ready: dict[Key, list[Group]] = {}
        self._order: list[Key] = []
        self.random = None if seed is None else random.Random(seed)
        self.held_back: list[Group] = []

    def start(self, group: Group) -> None:
        """Take all lanes of a wave at the kernel's first instruction."""
        wave, source = group.wave, self.random
        if source is None or wave.blocks == 1 or source.random() < 0.5:
            self.push(group)
            return
        turn = np.array([source.randrange(MOST_TURNS) for _ in range(wave.blocks)])[group.blocks]
        parts = [
            group.part(np.flatnonzero(turn == number), group.code.live_at(group.pc))
            for number in sorted(set(turn.tolist()))
        ]
        self.held_back = parts[1:]
        self.push(parts[0])

    def push(self, group: Group) -> None:
        """Let a group wait for its turn; it joins those that wait at the same place."""
        key = key_of(group)
        waiting = self.ready.get(key)
        if waiting is None:
            self.ready[key] = [group]
            heapq.heappush(self._order, key)
        else:
            waiting.append(group)

    def cuts(self, steps: int) -> bool:
        """Whether the random order stops a group within its next `steps` instructions of straight code."""
        if self.random is None or steps < 2 or len(self.ready) >= MOST_PARTS:
            return False
        return self.random.random() < 0.25

    def goes_on(self, group: Group) -> bool:
        """Whether `group` may run on before all that wait."""
        if self.random is not None and len(self.ready) < MOST_PARTS:
            return self.random.random() < 0.5
        order = self._order
        while order and order[0] not in self.ready:
            heapq.heappop(order)
        return not order or key_of(group) < order[0]

    def pop(self) -> Group | None:
        """The group whose turn it is, or None if no lane can run."""
        if self.held_back and (not self.ready or any(patience for patience, *_ in self.ready)):
            self.push(self.held_back.pop())
        if not self.ready:
            return None
        if self.random is not None and len(self.ready) < MOST_PARTS:
            return self._pop_random(self.random)
        while self._order[0] not in self.ready:
            heapq.heappop(self._order)
        return joined(self.ready.pop(heapq.heappop(self._order)))

    def _pop_random(self, source: random.Random) -> Group:
        group = joined(self.ready.pop(source.choice(sorted(self.ready))))
        if group.count > 1 and source.random() < 0.5:
            keep = np.array([source.random() < 0.5 for _ in range(-(-group.wave.lanes // 32))])[group.lanes >> 5]
            if source.random() < 0.25:
                keep = np.array([source.random() < 0.5 for _ in range(group.count)])
            if keep.any() and not keep.all():
                live = group.code.live_at(group.pc)
                self.push(group.part(np.flatnonzero(~keep), live))
                return group.part(np.flatnonzero(keep), live)
        return group


@dataclass
class Wave:
    """`grid` and `block` are (x, y, z); the wave's blocks are numbered from `first_block` in x-major order.

    Each block has `block_lanes` places (its threads, rounded up to whole warps); `alive` says which hold a thread that
    has not ended.
    """

    kernel: str
    arena: Arena
    grid: Shape
    block: Shape
    first_block: int
    blocks: int
    shared_bytes: int
    dynamic_shared: int
    parameters: bytes
    parameter_address: int
    budget: Budget
    observer: Observer | None = None
    heap_limit: int = 8 << 20
    output: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        threads = self.block[0] * self.block[1] * self.block[2]
        self.threads = threads
        self.block_lanes = -(-threads // 32) * 32
        self.lanes = self.blocks * self.block_lanes
        places = np.arange(self.lanes)
        self.block_of: Lanes = places // self.block_lanes if self.blocks > 1 else np.zeros(1, np.int64)
        self.alive: NDArray[np.bool_] = places % self.block_lanes < threads
        self.alive_count = threads * self.blocks
        self.live_in_block: NDArray[np.int64] = np.full(self.blocks, threads)
        self.special: dict[str, Vector] = {}
        self.spaces = Spaces(self.arena, self.blocks, self.lanes, self.shared_bytes)
        self.scheduler = Scheduler()
        self.paths: dict[tuple[int, int, int], int] = {}
        self.clock = 0
        self.barriers: Barriers
        self.clusters: ClusterBarriers
        self.meetings: WarpMeetings
        self.instruction_of: Callable[[int, int], Instruction]

    def tick(self, steps: int) -> int:
        """A time that never goes back; in nanoseconds or cycles, as one likes."""
        self.clock = max(self.clock + 20, steps)
        return self.clock

    def path_of(self, path: int, function: int, pc: int) -> int:
        """The number of the chain of calls `path` with one more from `pc` of a function."""
        key = (path, function, pc)
        found = self.paths.get(key)
        if found is None:
            found = self.paths[key] = len(self.paths) + 1
        return found

    def position(self, lane: int) -> tuple[Shape, Shape]:
        """(block, thread) of a place in the wave."""
        linear, thread = self.first_block + lane // self.block_lanes, lane % self.block_lanes
        return _unfolded(linear, self.grid), _unfolded(thread, self.block)

    def turn_back(self, group: Group) -> None:
        """`group` took a back edge: stop a loop without end, and let others run if it may wait for them."""
        group.spins += 1
        if group.steps > self.budget.limit:
            self.overrun(group)
        if (self.scheduler.ready or self.scheduler.held_back) and (group.waits or group.spins >= LONG_TURN):
            group.patience += 1
            group.spins = group.waits = 0

    def overrun(self, group: Group) -> NoReturn:
        """Give up a thread that has run for too long."""
        text = f"no end after {group.steps} instructions of one thread (the step budget is {self.budget.limit})"
        self.fault(text, group, 0, self.instruction_of(group.code.number, group.pc), "endless-loop")

    def retire(self, group: Active) -> None:
        """The lanes of `group` have ended."""
        if self.observer is not None:
            self.observer.on_exit(group.lanes)
        self.alive[group.lanes] = False
        self.alive_count -= group.count
        if self.alive_count == 0:
            self.live_in_block[:] = 0
        else:
            self.live_in_block -= np.bincount(group.lanes // self.block_lanes, minlength=self.blocks)
        self.barriers.recheck()
        self.clusters.recheck()
        self.meetings.recheck()

    def fault(
        self, text: str, active: Active, position: int, instruction: Instruction | None, slug: str = "kernel-fault"
    ) -> NoReturn:
        """End the launch because of one lane, with all that is known of the place.

        Raises:
            KernelFault: always.
        """
        block, thread = self.position(int(active.lanes[position]))
        places = [f"kernel {demangle(self.kernel)}, block {block}, thread {thread}"]
        if instruction is not None:
            places.append(f"PTX line {instruction.line}: {instruction.text}")
            if instruction.loc is not None:
                places[:0] = [instruction.place, *inlined_places(instruction.inlined_at)]
            if instruction.within is not None:
                places[-1] += f", in {library_place(instruction.within)}"
        raise KernelFault(
            text, *places, kernel=self.kernel, instruction=instruction, block=block, thread=thread, slug=slug
        )


def _unfolded(linear: int, shape: Shape) -> Shape:
    return linear % shape[0], linear // shape[0] % shape[1], linear // (shape[0] * shape[1])
