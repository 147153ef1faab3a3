"""Shadow memory: who accessed each granule last, and when.

A granule is the smallest size that was accessed so far in the region (4 bytes to begin with). An entry packs
time << 32 | bits | thread: the thread's number in the grid from 1, and whether a read was a strong operation of wide
or of block scope; 0 means never.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rglink.emulate.checks.touch import Offsets, Touch

Entries = NDArray[np.int64]
# Where a touch falls in the entries: a slice for consecutive granules, else their indices.
Index = slice | NDArray[np.int64]
WIDE_BIT, NARROW_BIT = 1 << 30, 1 << 29
STRONG_BITS = WIDE_BIT | NARROW_BIT
LARGEST_SHIFT = 2


class Shadow:
    """The entries of one region of `size` bytes.

    `writes` are weak writes, `strong` strong ones; of reads the latest is kept (`reads`) and one more by another
    thread (`others`). `copies` are asynchronous copies that nobody has waited for.
    """

    def __init__(self, size: int) -> None:
        self.shift = LARGEST_SHIFT
        self.size = size
        self.writes, self.reads = self._fresh(), self._fresh()
        self.others: Entries | None = None
        self.strong: Entries | None = None
        self.copies: Entries | None = None
        # When each kind of entry was last written; 0 is never, and then it may not be there.
        self.last = {"writes": 0, "reads": 0, "others": 0, "strong": 0}

    def _fresh(self) -> Entries:
        return np.zeros((self.size >> self.shift) + 1, np.int64)

    def grow(self, size: int) -> None:
        """Make room for a region that has become larger."""
        self.size = size
        count = (size >> self.shift) + 1
        for name in ("writes", "reads", "others", "strong", "copies"):
            old: Entries | None = getattr(self, name)
            if old is not None:
                fresh = np.zeros(count, np.int64)
                fresh[: len(old)] = old
                setattr(self, name, fresh)

    def refine(self, size: int) -> None:
        """Make granules no larger than `size` bytes."""
        shift = size.bit_length() - 1
        if shift >= self.shift:
            return
        times = 1 << (self.shift - shift)
        self.shift = shift
        for name in ("writes", "reads", "others", "strong", "copies"):
            old: Entries | None = getattr(self, name)
            if old is not None:
                setattr(self, name, np.repeat(old, times))

    def second_readers(self) -> Entries:
        """`others`, made on first use."""
        if self.others is None:
            self.others = np.zeros_like(self.reads)
        return self.others

    def strong_writes(self) -> Entries:
        """`strong`, made on first use."""
        if self.strong is None:
            self.strong = np.zeros_like(self.writes)
        return self.strong

    def pending_copies(self) -> Entries:
        """`copies`, made on first use."""
        if self.copies is None:
            self.copies = np.zeros_like(self.writes)
        return self.copies

    def index(self, touch: Touch) -> tuple[Index, int]:
        """Where a touch falls, granule after granule and lane after lane, and how many granules each lane has."""
        each = max(touch.size >> self.shift, 1)
        at = touch.at
        if touch.run or len(at) == 1:
            first = int(at[0]) >> self.shift
            return slice(first, first + each * len(at)), each
        index = at >> self.shift
        return (index if each == 1 else spread(index, each)), each


def spread(index: Offsets, each: int) -> Offsets:
    """`each` consecutive places from every index on."""
    return (index[:, None] + np.arange(each)).reshape(-1)
