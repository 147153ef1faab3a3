"""What a launch cost, counted where the machine executes: by source line, and in all.

Counts are those of the machine's order (deepest call first, then the lowest place in the function): a warp issues an
instruction once for each group of its lanes that stand there together. They are no times.

Shared memory has 32 banks of 4 bytes. A warp's access of up to 4 bytes for each lane is one pass; one of 8 bytes is a
pass for each half of the warp, one of 16 bytes for each quarter. A pass takes as many wavefronts as the bank with the
most different 4-byte words in it has; what exceeds one for each pass are conflicts. Global memory moves in sectors of
32 bytes: a request is one access of one warp, its sectors are the different ones that its lanes touch.

Source: CUDA C++ Programming Guide, "Shared Memory" under "Compute Capability 5.x" to "9.0"; CUDA C++ Best Practices
Guide, "Coalesced Access to Global Memory"; Nsight Compute documentation, "Memory Tables" (requests, wavefronts,
sectors).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rglink.emulate.frames import Active, Lanes
from rglink.emulate.memory import GLOBAL_BASE, SHARED_BASE, WINDOW, Addresses
from rglink.emulate.ptx import Instruction
from rglink.emulate.wave import Wave

WARP = 32
SECTOR_BYTES = 32
BANK_BYTES = 4
BANKS = 32
# A place in the source: (file, line), or ("", line of the PTX) without a line table.
Place = tuple[str, int]


@dataclass
class Counts:
    """`instructions` of lanes, `issues` of warps; requests, wavefronts and passes of shared, sectors of global memory.

    `used` are the different bytes that the lanes of the global requests asked for.
    """

    instructions: int = 0
    issues: int = 0
    shared_requests: int = 0
    shared_passes: int = 0
    shared_wavefronts: int = 0
    global_requests: int = 0
    global_sectors: int = 0
    global_used: int = 0

    def add(self, other: Counts) -> None:
        """Add all of `other`."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def active_share(self) -> float:
        """Of the lanes of the warps that issued, the share that took part."""
        return self.instructions / (WARP * self.issues) if self.issues else 0.0

    @property
    def bank_conflicts(self) -> int:
        """Wavefronts beyond one for each pass."""
        return self.shared_wavefronts - self.shared_passes

    @property
    def sectors_per_request(self) -> float:
        return self.global_sectors / self.global_requests if self.global_requests else 0.0

    @property
    def used_share(self) -> float:
        """Of the bytes that were moved from and to global memory, the share that some lane asked for."""
        return self.global_used / (SECTOR_BYTES * self.global_sectors) if self.global_sectors else 0.0


@dataclass(frozen=True)
class Profile:
    """`threads` that were launched, the counts of all of them, and those of each place in order of file and line."""

    threads: int
    total: Counts
    lines: tuple[tuple[Place, Counts], ...]


@dataclass
class ProfileObserver:
    """Counts while a kernel runs (`launch(..., observer=...)`); `profile()` tells what it counted."""

    threads: int = 0
    _places: dict[Place, Counts] = field(default_factory=lambda: defaultdict(Counts))
    _runs: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)
    _wave: Wave | None = None

    def profile(self) -> Profile:
        """All that was counted so far."""
        self._settle()
        total = Counts()
        for counts in self._places.values():
            total.add(counts)
        return Profile(self.threads, total, tuple(sorted(self._places.items())))

    def on_wave(self, wave: Wave) -> None:
        """Functions are numbered by kernel, so runs of another launch must be settled first."""
        self._settle()
        self._wave = wave
        self.threads += wave.alive_count

    def on_run(self, active: Active, code_number: int, first: int, last: int) -> None:
        """Count a run as a whole: its instructions share lanes and warps."""
        tally = self._runs.setdefault((code_number, first, last), [0, 0])
        tally[0] += active.count
        tally[1] += _warps(active.lanes)

    def on_access(
        self, kind: str, space: str, active: Active, addresses: Addresses, size: int, instruction: Instruction
    ) -> None:
        """Count requests, wavefronts and sectors of one access."""
        if space == "local" or space == "param" or space == "const" or not len(active.lanes):
            return
        lanes = active.lanes
        if len(addresses) == 1 and len(lanes) > 1:
            addresses = np.broadcast_to(addresses, lanes.shape)
        counts = self._places[_place(instruction)]
        if space == "shared":
            _count_shared(counts, lanes, addresses, size)
            return
        if space == "generic":
            near = (addresses >= np.uint64(SHARED_BASE)) & (addresses < np.uint64(SHARED_BASE + WINDOW))
            if near.any():
                _count_shared(counts, lanes[near], addresses[near], size)
        far = (addresses < np.uint64(SHARED_BASE)) | (addresses >= np.uint64(GLOBAL_BASE))
        if space == "global" or far.any():
            chosen = slice(None) if space == "global" or far.all() else far
            _count_global(counts, lanes[chosen], addresses[chosen], size)

    def on_fence(self, active: Active, instruction: Instruction) -> None:
        """Costs nothing that is counted."""

    def on_barrier(self, active: Active, barrier: int, instruction: Instruction, arrives: bool) -> None:
        """Costs nothing that is counted."""

    def on_warp_sync(self, active: Active, masks: Addresses, instruction: Instruction) -> None:
        """Costs nothing that is counted."""

    def on_branch(self, active: Active, taken: int, instruction: Instruction) -> None:
        """Divergence shows in the lanes of the runs."""

    def on_exit(self, lanes: Lanes) -> None:
        """Costs nothing that is counted."""

    def on_heap(self, active: Active, address: int, size: int, freed: bool) -> None:
        """Costs nothing that is counted."""

    def _settle(self) -> None:
        wave = self._wave
        if wave is None:
            return
        for (code_number, first, last), (lanes, warps) in self._runs.items():
            for at in range(first, last + 1):
                try:
                    instruction = wave.instruction_of(code_number, at)
                except IndexError:  # the end of a body without ret, which is no instruction
                    continue
                counts = self._places[_place(instruction)]
                counts.instructions += lanes
                counts.issues += warps
        self._runs.clear()


def _place(instruction: Instruction) -> Place:
    return instruction.loc or ("", instruction.line)


def _warps(lanes: Lanes) -> int:
    """How many warps ascending lanes belong to."""
    warps = lanes >> 5
    return 1 + int(np.count_nonzero(warps[1:] != warps[:-1])) if len(warps) else 0


def _count_shared(counts: Counts, lanes: Lanes, addresses: Addresses, size: int) -> None:
    """`addresses` may lie in the window of generic addresses: its base is a multiple of all banks together."""
    words = max(1, size // BANK_BYTES)
    # Lanes of one pass: 32 up to 4 bytes, 16 of 8 bytes, 8 of 16 bytes.
    passes = lanes // max(1, WARP // words)
    first = (addresses // np.uint64(BANK_BYTES)).astype(np.int64)
    touched = (first[:, None] + np.arange(words)).reshape(-1)
    # Different words of each pass, then how many of them fall into each of its banks.
    pairs = _distinct(np.repeat(passes, words), touched)
    banks, tally = np.unique(pairs[0] * BANKS + pairs[1] % BANKS, return_counts=True)
    _, starts = np.unique(banks // BANKS, return_index=True)
    counts.shared_requests += _warps(lanes)
    counts.shared_passes += len(starts)
    counts.shared_wavefronts += int(np.maximum.reduceat(tally, starts).sum())


def _count_global(counts: Counts, lanes: Lanes, addresses: Addresses, size: int) -> None:
    warps = lanes >> 5
    start = addresses.astype(np.int64)
    reach = (start + (size - 1)) // SECTOR_BYTES - start // SECTOR_BYTES
    most = int(reach.max()) + 1
    sectors = (start // SECTOR_BYTES)[:, None] + np.minimum(np.arange(most), reach[:, None])
    counts.global_requests += _warps(lanes)
    counts.global_sectors += len(_distinct(np.repeat(warps, most), sectors.reshape(-1))[0])
    counts.global_used += size * len(_distinct(warps, start)[0])


def _distinct(owners: NDArray[np.int64], numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The different pairs, sorted by owner and number."""
    order = np.lexsort((numbers, owners))
    owners, numbers = owners[order], numbers[order]
    fresh = np.ones(len(owners), np.bool_)
    fresh[1:] = (owners[1:] != owners[:-1]) | (numbers[1:] != numbers[:-1])
    return owners[fresh], numbers[fresh]
