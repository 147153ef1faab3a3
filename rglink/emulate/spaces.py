"""Shared and local memory of one wave, and the one address space over all of it.

Shared memory is one stretch for each block. Local memory is laid out by rows of 8 bytes, one column for each lane, so
that an address which all lanes share is a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rglink.emulate.frames import Active, Lanes
from rglink.emulate.memory import (
    GLOBAL_BASE,
    LOCAL_BASE,
    SHARED_BASE,
    SHIFTS,
    UNSIGNED,
    WINDOW,
    Addresses,
    Arena,
    BadAccess,
    Bits,
    check_alignment,
)

# A thread's stack, as the hardware limits it.
LARGEST_STACK = 512 * 1024
ARENA_SPACES = frozenset(("global", "const", "param"))
NOWHERE = np.zeros(0, np.int64)


def local_offsets(addresses: Addresses) -> Addresses:
    """Local addresses; LLVM also reads variadic arguments by `ld.local` through generic ones, which devices take."""
    if LOCAL_BASE <= int(addresses[0]) < LOCAL_BASE + WINDOW:
        return addresses - np.uint64(LOCAL_BASE)
    return addresses


class Spaces:
    """All memory that the lanes of one wave see. `shared_bytes` is the size for each block."""

    def __init__(self, arena: Arena, blocks: int, lanes: int, shared_bytes: int) -> None:
        self.arena, self.lanes = arena, lanes
        self.shared_bytes = shared_bytes
        self.shared_stride = -(-shared_bytes // 16) * 16
        shared = np.zeros(max(blocks * self.shared_stride, 16), np.uint8)
        self.shared: dict[int, Bits] = {size: shared.view(dtype) for size, dtype in UNSIGNED.items()}
        self.rows = np.zeros((0, lanes), np.uint64)

    def grow_stack(self, size: int) -> None:
        """Make room for `size` bytes of local memory in every lane.

        Raises:
            BadAccess: more than a thread may have.
        """
        if size > LARGEST_STACK:
            raise BadAccess(
                f"local memory overflow: the stack needs {size} bytes of {LARGEST_STACK}", 0, "stack-overflow"
            )
        have = len(self.rows)
        if size > 8 * have:
            grown = np.zeros((max(-(-size // 8), 2 * have), self.lanes), np.uint64)
            grown[:have] = self.rows
            self.rows = grown

    def load(self, space: str, active: Active, addresses: Addresses, size: int) -> Bits:
        """The words of `size` bytes (1 to 8) at `addresses`: one element if all lanes surely get the same.

        Raises:
            BadAccess: outside of what was allocated, or misaligned.
        """
        if space in ARENA_SPACES:
            return self.arena.load(addresses, size)
        if space == "shared":
            view, index = self._shared(active, addresses, size)
            return view.take(index)
        if space == "local":
            return self._load_local(active, local_offsets(addresses), size)
        where = self._window(addresses)
        if where is not None:
            return self.load(where[0], active, addresses - where[1] if where[1] else addresses, size)
        result = np.zeros(active.count, UNSIGNED[size])
        for part, positions, near, base in self._split(active, addresses):
            result[positions] = self._load_part(part, positions, near, addresses[positions] - base, size)
        return result

    def _load_part(self, part: Active, positions: Lanes, space: str, addresses: Addresses, size: int) -> Bits:
        try:
            return self.load(space, part, addresses, size)
        except BadAccess as bad:
            raise BadAccess(bad.text, int(positions[bad.position]), bad.slug) from None

    def store(self, space: str, active: Active, addresses: Addresses, size: int, values: Bits) -> None:
        """Write `values`; of lanes that write to one place the last one wins.

        Raises:
            BadAccess: outside of what was allocated, or misaligned.
        """
        if space in ARENA_SPACES:
            self.arena.store(addresses, size, values)
            return
        if space == "shared":
            view, index = self._shared(active, addresses, size)
            view[index] = values[-1] if len(index) == 1 else values
            return
        if space == "local":
            self._store_local(active, local_offsets(addresses), size, values)
            return
        where = self._window(addresses)
        if where is not None:
            self.store(where[0], active, addresses - where[1] if where[1] else addresses, size, values)
            return
        for part, positions, near, base in self._split(active, addresses):
            chosen = values if len(values) == 1 else values[positions]
            try:
                self.store(near, part, addresses[positions] - base, size, chosen)
            except BadAccess as bad:
                raise BadAccess(bad.text, int(positions[bad.position]), bad.slug) from None

    def places(
        self, space: str, active: Active, addresses: Addresses, size: int
    ) -> Iterator[tuple[Bits, NDArray[np.int64], Lanes | None]]:
        """(words, place in them for each lane, which lanes or None for all) of each kind of memory touched.

        Raises:
            BadAccess: outside of what was allocated, or misaligned.
        """
        if len(addresses) != active.count:
            addresses = np.broadcast_to(addresses, (active.count,))
        if space in ARENA_SPACES:
            index = self.arena.indices(addresses, size)
            yield self.arena.views[size], index, None
        elif space == "shared":
            view, index = self._shared(active, addresses, size)
            yield view, np.broadcast_to(index, (active.count,)), None
        elif space == "local":
            view, index = self._local(active, local_offsets(addresses), size)
            yield view, index, None
        else:
            where = self._window(addresses)
            if where is not None:
                yield from self.places(where[0], active, addresses - where[1], size)
                return
            for part, positions, near, base in self._split(active, addresses):
                for view, index, _ in self.places(near, part, addresses[positions] - base, size):
                    yield view, index, positions

    def _window(self, addresses: Addresses) -> tuple[str, np.uint64] | None:
        """The space that all generic `addresses` are in and its base, or None if they are in several."""
        low = int(addresses[0])
        if len(addresses) == 1:
            high = low
        else:
            low, high = int(addresses.min()), int(addresses.max())
        if low >= GLOBAL_BASE or high < SHARED_BASE:
            return "global", np.uint64(0)
        if low >= LOCAL_BASE and high < LOCAL_BASE + WINDOW:
            return "local", np.uint64(LOCAL_BASE)
        if low >= SHARED_BASE and high < SHARED_BASE + WINDOW:
            return "shared", np.uint64(SHARED_BASE)
        return None if low != high else ("global", np.uint64(0))

    def _split(self, active: Active, addresses: Addresses) -> Iterator[tuple[Active, Lanes, str, np.uint64]]:
        remaining = np.ones(len(addresses), np.bool_)
        for space, start in (("shared", SHARED_BASE), ("local", LOCAL_BASE)):
            inside = (addresses >= np.uint64(start)) & (addresses < np.uint64(start + WINDOW))
            remaining &= ~inside
            positions = np.flatnonzero(inside)
            if len(positions):
                yield active.subset(positions, ()), positions, space, np.uint64(start)
        positions = np.flatnonzero(remaining)
        if len(positions):
            yield active.subset(positions, ()), positions, "global", np.uint64(0)

    def _shared(self, active: Active, addresses: Addresses, size: int) -> tuple[Bits, NDArray[np.int64]]:
        check_alignment(addresses, size)
        high = int(addresses.max())
        if high + size > self.shared_bytes:
            position = int(np.flatnonzero(addresses + np.uint64(size) > np.uint64(self.shared_bytes))[0])
            at = int(addresses[position])
            text = f"out of bounds: {size} bytes at shared address 0x{at:x}, the block has {self.shared_bytes} bytes"
            raise BadAccess(text, position)
        index = addresses.view(np.int64)
        if len(active.blocks) > 1:
            index = index + active.blocks * self.shared_stride
        elif active.wave.blocks > 1:
            index = index + int(active.blocks[0]) * self.shared_stride
        return self.shared[size], index >> SHIFTS[size] if size > 1 else index

    def _check_local(self, addresses: Addresses, size: int) -> None:
        check_alignment(addresses, size)
        high = int(addresses.max())
        if high + size > 8 * len(self.rows):
            position = int(np.flatnonzero(addresses + np.uint64(size) > np.uint64(8 * len(self.rows)))[0])
            at = int(addresses[position])
            text = f"out of bounds: {size} bytes at local address 0x{at:x}, the stack has {8 * len(self.rows)} bytes"
            raise BadAccess(text, position)

    def _row(self, address: int, size: int) -> NDArray[Any]:
        """The words of all lanes at one local address."""
        row: NDArray[Any] = self.rows[address >> 3].view(UNSIGNED[size])
        words = 8 // size
        return row if words == 1 else row[(address & 7) >> SHIFTS[size] :: words]

    def _load_local(self, active: Active, addresses: Addresses, size: int) -> Bits:
        if len(addresses) == 1:
            self._check_local(addresses, size)
            row = self._row(int(addresses[0]), size)
            return row.copy() if active.full else row[active.lanes]
        view, index = self._local(active, addresses, size)
        return view.take(index)

    def _store_local(self, active: Active, addresses: Addresses, size: int, values: Bits) -> None:
        if len(addresses) == 1:
            self._check_local(addresses, size)
            row = self._row(int(addresses[0]), size)
            if active.full:
                row[:] = values
            else:
                row[active.lanes] = values
            return
        view, index = self._local(active, addresses, size)
        view[index] = values

    def _local(self, active: Active, addresses: Addresses, size: int) -> tuple[Bits, NDArray[np.int64]]:
        self._check_local(addresses, size)
        offsets = addresses.view(np.int64)
        index = ((offsets >> 3) * self.lanes + active.lanes) * (8 // size) + ((offsets & 7) >> SHIFTS[size])
        return self.rows.reshape(-1).view(UNSIGNED[size]), index
