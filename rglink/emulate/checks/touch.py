"""Where an access falls: addresses of an instruction to byte offsets in one region of memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rglink.emulate.frames import Active
from rglink.emulate.memory import GLOBAL_BASE, LOCAL_BASE, SHARED_BASE, WINDOW, Addresses, is_run

Offsets = NDArray[np.int64]
ARENA_SPACES = frozenset(("global", "const", "param"))


@dataclass(slots=True)
class Touch:
    """`at` are byte offsets in the region: one for each lane of `active`, or one that all share (`shared`).

    In the region "shared" the blocks of a wave lie one after the other; in "local" every lane has its own offsets.
    `run` says that each offset is `size` above the one before.
    """

    region: str
    active: Active
    at: Offsets
    size: int
    run: bool

    @property
    def uniform(self) -> bool:
        """Whether several lanes share the only offset."""
        return len(self.at) == 1 and self.active.count > 1


def touches(space: str, active: Active, addresses: Addresses, size: int) -> Iterator[Touch]:
    """The parts of an access by region; parts that lie outside of all memory are left to the machine."""
    if space in ARENA_SPACES:
        yield from _global(active, addresses, size)
    elif space == "shared":
        yield from _shared(active, addresses, size)
    elif space == "local":
        yield from _local(active, addresses, size)
    else:
        low = int(addresses.min())
        high = low if len(addresses) == 1 else int(addresses.max())
        if low >= GLOBAL_BASE:
            yield from _global(active, addresses, size)
        elif low >= LOCAL_BASE and high < LOCAL_BASE + WINDOW:
            yield from _local(active, addresses - np.uint64(LOCAL_BASE), size)
        elif low >= SHARED_BASE and high < SHARED_BASE + WINDOW:
            yield from _shared(active, addresses - np.uint64(SHARED_BASE), size)
        elif len(addresses) > 1:
            yield from _mixed(active, addresses, size)


def _mixed(active: Active, addresses: Addresses, size: int) -> Iterator[Touch]:
    rest = np.ones(len(addresses), np.bool_)
    for space, start in (("shared", SHARED_BASE), ("local", LOCAL_BASE)):
        inside = (addresses >= np.uint64(start)) & (addresses < np.uint64(start + WINDOW))
        rest &= ~inside
        if inside.any():
            index = np.flatnonzero(inside)
            yield from touches(space, active.subset(index, ()), addresses[index] - np.uint64(start), size)
    if rest.any():
        index = np.flatnonzero(rest)
        yield from touches("global", active.subset(index, ()), addresses[index], size)


def _global(active: Active, addresses: Addresses, size: int) -> Iterator[Touch]:
    at = (addresses - np.uint64(GLOBAL_BASE)).view(np.int64)
    count = len(at)
    if count > 1 and is_run(addresses, size):
        low, high, run = int(at[0]), int(at[-1]), True
    else:
        low, high, run = int(at.min()), int(at.max()), False
    if low >= 0 and high + size <= active.wave.arena.used:
        yield Touch("global", active, at, size, run)


def _shared(active: Active, addresses: Addresses, size: int) -> Iterator[Touch]:
    spaces = active.wave.spaces
    if int(addresses.max()) + size > spaces.shared_bytes:
        return
    at = addresses.view(np.int64)
    blocks = active.blocks
    if len(blocks) > 1:
        at = at + blocks * spaces.shared_stride
    elif active.wave.blocks > 1:
        at = at + int(blocks[0]) * spaces.shared_stride
    yield Touch("shared", active, at, size, len(at) > 1 and is_run(at.view(np.uint64), size))


def _local(active: Active, addresses: Addresses, size: int) -> Iterator[Touch]:
    if int(addresses.max()) + size <= 8 * len(active.wave.spaces.rows):
        yield Touch("local", active, addresses.view(np.int64), size, False)
