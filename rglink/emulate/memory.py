"""Global memory: one arena of bytes at a fixed address, with a table of what was allocated in it.

Constants, kernel parameters and the device heap live there too. Between two allocations lies a gap, and every access
must fall into one allocation: a check that is nearly free, as a vector of addresses mostly stays in one.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rglink.emulate.errors import LaunchError

Bits = NDArray[np.unsignedinteger]
Addresses = NDArray[np.uint64]

# Windows of the one address space. Shared and local addresses are offsets; generic ones lie in these windows.
SHARED_BASE = 1 << 40
LOCAL_BASE = 1 << 41
WINDOW = 1 << 32
FUNCTION_BASE = 1 << 42
GLOBAL_BASE = 1 << 44
GAP = 256
LARGEST_ARENA = 8 << 30

UNSIGNED: dict[int, np.dtype[np.unsignedinteger]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
}
SHIFTS = {1: 0, 2: 1, 4: 2, 8: 3}


@dataclass
class Allocation:
    """`kind` is global, const, param, buffer (a launch's array) or heap; `end` is one past the last byte."""

    name: str
    kind: str
    start: int
    size: int
    freed: bool = False

    @property
    def end(self) -> int:
        return self.start + self.size


class BadAccess(Exception):
    """`text` says what is wrong with the access of the lane at `position` in the vector."""

    def __init__(self, text: str, position: int, slug: str = "out-of-bounds") -> None:
        super().__init__(text)
        self.text, self.position, self.slug = text, position, slug


def check_alignment(addresses: Addresses, size: int) -> None:
    """Refuse addresses that are no multiple of `size` bytes.

    Raises:
        BadAccess: with the first lane that has one.
    """
    if size > 1 and int(np.bitwise_or.reduce(addresses)) & (size - 1):
        bad = int(np.flatnonzero(addresses & np.uint64(size - 1))[0])
        address = int(addresses[bad])
        raise BadAccess(f"address 0x{address:x} is not a multiple of {size}", bad, "misaligned-access")


def is_run(addresses: Addresses, size: int) -> bool:
    """Whether each address is `size` above the one before."""
    count = len(addresses)
    if int(addresses[-1]) - int(addresses[0]) != (count - 1) * size:
        return False
    return bool(((addresses[1:] - addresses[:-1]) == size).all())


class Arena:
    """The bytes and the allocations, sorted by address."""

    def __init__(self) -> None:
        self.bytes = np.zeros(1 << 16, np.uint8)
        self.views: dict[int, Bits] = {}
        self.used = GAP
        self.allocations: list[Allocation] = []
        self.starts: list[int] = []
        self.heap_bytes = 0
        self._view()

    def _view(self) -> None:
        self.views = {size: self.bytes.view(dtype) for size, dtype in UNSIGNED.items()}

    def allocate(self, name: str, kind: str, size: int, align: int = 256) -> int:
        """Zeroed memory of `size` bytes; returns its address.

        Raises:
            LaunchError: more than the arena may hold.
        """
        start = -(-self.used // align) * align
        end = start + size + GAP
        if end > LARGEST_ARENA:
            raise LaunchError(f"{name}: {size} bytes do not fit, the machine's memory ends at {LARGEST_ARENA} bytes")
        if end > len(self.bytes):
            grown = np.zeros(max(2 * len(self.bytes), -(-end // 4096) * 4096), np.uint8)
            grown[: self.used] = self.bytes[: self.used]
            self.bytes = grown
            self._view()
        self.bytes[self.used : end] = 0
        self.used = end
        self.allocations.append(Allocation(name, kind, GLOBAL_BASE + start, size))
        self.starts.append(GLOBAL_BASE + start)
        return GLOBAL_BASE + start

    def release_from(self, count: int) -> None:
        """Forget every allocation after the first `count`, and their memory."""
        del self.allocations[count:], self.starts[count:]
        self.used = self.allocations[-1].end - GLOBAL_BASE + GAP if self.allocations else GAP
        self.heap_bytes = 0

    def find(self, address: int) -> Allocation | None:
        """The allocation that begins at or before `address`, nearest to it."""
        at = bisect.bisect_right(self.starts, address) - 1
        return self.allocations[at] if at >= 0 else None

    def slice(self, address: int, size: int) -> NDArray[np.uint8]:
        """The bytes of one range, not checked."""
        return self.bytes[address - GLOBAL_BASE : address - GLOBAL_BASE + size]

    def text(self, address: int) -> str:
        """The text that ends in a NUL at `address`; empty for an address outside of every allocation."""
        found = self.find(address)
        if found is None or address >= found.end:
            return ""
        data = self.slice(address, found.end - address).tobytes()
        return data.split(b"\0", 1)[0].decode("utf-8", "replace")

    def check(self, addresses: Addresses, size: int) -> None:
        """Refuse accesses of `size` bytes that do not fall into one live allocation.

        Raises:
            BadAccess: with the first lane that has one.
        """
        low, high = int(addresses.min()), int(addresses.max())
        found = self.find(low)
        if found is not None and high + size <= found.end and not found.freed:
            return
        starts = np.array(self.starts, np.uint64)
        ends = np.array([a.start if a.freed else a.end for a in self.allocations], np.uint64)
        at = np.searchsorted(starts, addresses, side="right").astype(np.int64) - 1
        bad = (at < 0) | (addresses + np.uint64(size) > ends[np.maximum(at, 0)]) if len(starts) else addresses >= 0
        if bad.any():
            position = int(np.flatnonzero(bad)[0])
            raise BadAccess(self.explain(int(addresses[position]), size), position)

    def explain(self, address: int, size: int) -> str:
        """Why an access to `address` is wrong, by the nearest allocation."""
        if address < 4096:
            return f"null pointer: {size} bytes at 0x{address:x}"
        found = self.find(address)
        following = bisect.bisect_right(self.starts, address)
        after = self.allocations[following] if following < len(self.allocations) else None
        what = f"{size} bytes at 0x{address:x}"
        if found is not None and address < found.end and found.freed:
            return f"use after free: {what}, {address - found.start} bytes into {found.name} ({found.size} bytes)"
        if after is not None and (found is None or after.start - address < address - found.end):
            return f"out of bounds: {what}, {after.start - address} bytes before {after.name} ({after.size} bytes)"
        if found is not None:
            beyond = address + size - found.end
            return f"out of bounds: {what}, {beyond} bytes past the end of {found.name} ({found.size} bytes)"
        return f"out of bounds: {what}, no allocation is near"

    def load(self, addresses: Addresses, size: int) -> Bits:
        """The `size`-byte words at `addresses`, bit patterns of that width."""
        view = self.views[size]
        first = self._run(addresses, size)
        if first >= 0:
            return view[first : first + len(addresses)].copy()
        check_alignment(addresses, size)
        self.check(addresses, size)
        return view.take(self._indices(addresses, size))

    def store(self, addresses: Addresses, size: int, values: Bits) -> None:
        """Write `values` (or one value for all) to `addresses`; of equal addresses the last lane wins."""
        view = self.views[size]
        count = len(addresses)
        first = self._run(addresses, size)
        if first >= 0:
            view[first : first + count] = values
            return
        check_alignment(addresses, size)
        self.check(addresses, size)
        if count == 1:
            view[(int(addresses[0]) - GLOBAL_BASE) >> SHIFTS[size]] = values[-1]
            return
        view[self._indices(addresses, size)] = values

    def indices(self, addresses: Addresses, size: int) -> NDArray[np.int64]:
        """Checked places of `addresses` in `views[size]`."""
        check_alignment(addresses, size)
        self.check(addresses, size)
        return self._indices(addresses, size)

    def _run(self, addresses: Addresses, size: int) -> int:
        """Where in `views[size]` addresses that follow each other in one allocation begin; -1 for all others."""
        low = int(addresses[0])
        if len(addresses) == 1 or low % size or not is_run(addresses, size):
            return -1
        found = self.find(low)
        if found is None or found.freed or low + len(addresses) * size > found.end:
            return -1
        return (low - GLOBAL_BASE) >> SHIFTS[size]

    def _indices(self, addresses: Addresses, size: int) -> NDArray[np.int64]:
        indices = addresses - np.uint64(GLOBAL_BASE)
        if size > 1:
            indices >>= np.uint64(SHIFTS[size])
        return indices.view(np.int64)
