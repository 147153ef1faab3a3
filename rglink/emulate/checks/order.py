"""What happens before what, by the PTX memory model.

Time counts the accesses and synchronisations of a launch. A thread knows of another thread's accesses up to a time:
for its own block through the last barrier of all threads, for warps through counted barriers, for its own warp through
`bar.warp.sync`, and for all others through what it acquired. `unordered` asks whether an earlier access is known.

Source: PTX ISA, "Memory Consistency Model", "Causality Order". Shuffles, votes and matches order no memory.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rglink.emulate.checks.releases import Releases
from rglink.emulate.frames import Lanes, Vector
from rglink.emulate.wave import Wave

Mask = NDArray[np.bool_]
# An entry of shadow memory: time << 32 | bits | number of the thread in the grid, from 1.
Entries = NDArray[np.int64]
THREAD_MASK = (1 << 29) - 1
TIME_SHIFT = 32
LANES = np.arange(32)


class Order:
    """The knowledge of the threads of one wave, and the time of the launch."""

    def __init__(self, threads: int) -> None:
        self.threads, self.now = threads, 0
        self.releases = Releases(threads)
        self.wave: Wave

    def begin_wave(self, wave: Wave) -> None:
        """New blocks, which know nothing of each other nor of blocks before them."""
        self.wave = wave
        self.block_floor = np.zeros(wave.blocks, np.int64)
        self.least_floor = 0
        self.warp_floor = np.zeros(wave.lanes, np.int64)
        self.pairs: NDArray[np.int64] | None = None
        self.warps: NDArray[np.int64] | None = None
        rows = self.threads * np.arange(wave.first_block, wave.first_block + wave.blocks)[:, None]
        self.numbers: Entries = (rows + np.arange(1, wave.block_lanes + 1)).reshape(-1)
        self.releases.begin_wave(wave)

    def tick(self) -> int:
        """The time of the next event."""
        self.now += 1
        return self.now

    def unordered(self, entries: Entries, lanes: Lanes) -> Mask:
        """For each earlier access in `entries` (none is 0) whether the thread at the same place in `lanes` may race."""
        wave = self.wave
        others = (entries & THREAD_MASK) - 1
        times = entries >> TIME_SHIFT
        blocks, places = np.divmod(others, self.threads)
        mine, local = np.divmod(lanes, wave.block_lanes)
        near = blocks == mine + wave.first_block
        ordered = near & ((times <= self.block_floor[mine]) | (places == local))
        warp, own_warp = places >> 5, local >> 5
        ordered |= near & (warp == own_warp) & (times <= self._warp_time(lanes, places))
        if self.warps is not None:
            ordered |= near & (times <= self.warps[mine, own_warp, warp])
        left = np.flatnonzero(~ordered)
        if len(left) and self.releases.used:
            known = self.releases.known_mask(others[left], times[left], lanes[left], self.numbers)
            ordered[left[known]] = True
        answer: Mask = ~ordered
        return answer

    def _warp_time(self, lanes: Lanes, places: Lanes) -> NDArray[np.int64]:
        if self.pairs is None:
            return self.warp_floor[lanes]
        known: NDArray[np.int64] = np.maximum(self.warp_floor[lanes], self.pairs[lanes, places & 31])
        return known

    def full_barrier(self, blocks: Lanes) -> None:
        """All threads of `blocks` (counted in the wave) have met."""
        self.block_floor[blocks] = self.tick()
        self.least_floor = int(self.block_floor.min())
        self.releases.join_blocks(blocks)

    def partial_barrier(self, block: int, warps: Lanes, waiting: Lanes) -> None:
        """`warps` of a block have come to a barrier; those `waiting` for it now know of all of them."""
        wave = self.wave
        if self.warps is None:
            count = wave.block_lanes >> 5
            self.warps = np.zeros((wave.blocks, count, count), np.int64)
        known = self.warps[block, warps].max(axis=0)
        known[warps] = self.tick()
        self.warps[block, waiting] = np.maximum(self.warps[block, waiting], known)
        first = block * wave.block_lanes
        come = (first + 32 * warps[:, None] + LANES).reshape(-1)
        gain = (first + 32 * waiting[:, None] + LANES).reshape(-1)
        if self.releases.used:
            knowing, learning = self.numbers[come], self.numbers[gain]
            self.releases.defer(len(gain), lambda: self.releases.join_lanes(knowing, learning))

    def warp_barrier(self, lanes: Lanes, masks: Vector) -> None:
        """Lanes have met at a warp barrier under their masks."""
        wave = self.wave
        now = self.tick()
        absent = np.packbits(~wave.alive.reshape(-1, 32), axis=1, bitorder="little").view(np.uint32)[:, 0]
        full = (masks | absent[lanes >> 5]) == np.uint32(0xFFFF_FFFF)
        self.warp_floor[lanes[full]] = now
        if not full.all():
            self._partial_warps(lanes[~full], np.broadcast_to(masks, lanes.shape)[~full], now)
        if self.releases.used:
            come, numbers = np.array(np.broadcast_to(masks, lanes.shape)), self.numbers
            self.releases.defer(len(lanes), lambda: self._join_warps(lanes, come, numbers))

    def _join_warps(self, lanes: Lanes, masks: Vector, numbers: Entries) -> None:
        """The lowest lane of each mask speaks for all; `numbers` are those of the wave that it happened in."""
        for lane, mask in zip(lanes.tolist(), masks.tolist(), strict=True):
            if not mask & ((1 << (lane & 31)) - 1):
                members = (lane & ~31) + np.flatnonzero(mask >> LANES & 1)
                together = numbers[members[members < len(numbers)]]
                self.releases.join_lanes(together, together)

    def _partial_warps(self, lanes: Lanes, masks: NDArray[np.uint32], now: int) -> None:
        if self.pairs is None:
            self.pairs = np.zeros((self.wave.lanes, 32), np.int64)
        members = (masks[:, None] >> LANES.astype(np.uint32)) & np.uint32(1) != 0
        old = self.pairs
        fresh = old[lanes]
        for other in range(32):
            row = old[(lanes & ~31) + other]
            np.maximum(fresh, np.where(members[:, other, None], row, 0), out=fresh)
        fresh[members] = now
        self.pairs[lanes] = fresh
