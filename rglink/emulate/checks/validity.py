"""Reads of memory that nobody has written: shared and local memory, heap blocks, arrays declared as results.

Every byte has a byte of 255 once it is written, laid out as the memory is. Stack memory of a function that has ended
counts as written for the next one at that place, and a copied value as written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rglink.emulate.checks.findings import Findings, access_text
from rglink.emulate.checks.touch import Touch
from rglink.emulate.checks.uses import used_elements
from rglink.emulate.checks.values import StoredValues
from rglink.emulate.frames import Lanes
from rglink.emulate.memory import GLOBAL_BASE, SHIFTS, UNSIGNED
from rglink.emulate.ptx import Instruction
from rglink.emulate.ptx import Vector as VectorOperand
from rglink.emulate.wave import Wave

Views = dict[int, NDArray[Any]]


class ValidityCheck:
    """The written bytes of one launch."""

    def __init__(self, findings: Findings, values: StoredValues) -> None:
        self.findings, self.values = findings, values
        self.shared: Views = {}
        self.globals: Views | None = None
        self.tracked: list[tuple[int, int]] = []
        self.low = self.high = 0
        self._used: dict[str, dict[int, tuple[bool, ...]]] = {}

    def begin_wave(self, wave: Wave) -> None:
        """Shared and local memory begin unwritten."""
        self.shared = _views(np.zeros(max(wave.blocks * wave.spaces.shared_stride, 16), np.uint8))
        self.rows = np.zeros(wave.spaces.rows.shape, np.uint64)

    def track(self, wave: Wave, address: int, size: int) -> None:
        """From now on the bytes of a range of global memory count as unwritten."""
        start = address - GLOBAL_BASE
        self._grown(wave)[1][start : start + size] = 0
        self.low = min(self.low, start) if self.tracked else start
        self.high = max(self.high, start + size)
        self.tracked.append((start, start + size))

    def _grown(self, wave: Wave) -> Views:
        """The bytes of global memory, as many as there are by now."""
        end = len(wave.arena.bytes)
        if self.globals is None or len(self.globals[1]) < end:
            fresh = np.full(end, 255, np.uint8)
            if self.globals is not None:
                fresh[: len(self.globals[1])] = self.globals[1]
            self.globals = _views(fresh)
        return self.globals

    def access(self, kind: str, touch: Touch, instruction: Instruction) -> None:
        """Check a read, or note a write."""
        elements = _elements(touch.size, instruction)
        views = self.shared
        if touch.region == "global":
            if self.globals is None or not ((touch.at >= self.low) & (touch.at < self.high)).any():
                return
            views = self._grown(touch.active.wave)
        width = touch.size // elements
        for element in range(elements):
            for offset, size in _pieces(width):
                at = touch.at + (element * width + offset)
                if kind == "store":
                    self._mark(views, touch, at, size)
                else:
                    self._check(views, touch, at, size, (element, width), instruction)

    def _mark(self, views: Views, touch: Touch, at: Lanes, size: int) -> None:
        everything = np.iinfo(UNSIGNED[size]).max
        if touch.region != "local":
            if touch.run and size == touch.size:
                first = int(at[0]) >> SHIFTS[size]
                views[size][first : first + len(at)] = everything
            else:
                views[size][at >> SHIFTS[size]] = everything
            return
        row, index = self._local(touch, at, size)
        row[index] = everything

    def _local(self, touch: Touch, at: Lanes, size: int) -> tuple[NDArray[Any], Any]:
        """A view of local memory, and where in it the lanes' words are."""
        active = touch.active
        if self.rows.shape != active.wave.spaces.rows.shape:
            grown = np.zeros(active.wave.spaces.rows.shape, np.uint64)
            grown[: len(self.rows)] = self.rows
            self.rows = grown
        words = 8 // size
        if len(at) == 1:
            row: NDArray[Any] = self.rows[int(at[0]) >> 3].view(UNSIGNED[size])
            row = row[(int(at[0]) & 7) >> SHIFTS[size] :: words]
            return row, slice(None) if active.full else active.lanes
        flat = self.rows.reshape(-1).view(UNSIGNED[size])
        return flat, ((at >> 3) * self.rows.shape[1] + active.lanes) * words + ((at & 7) >> SHIFTS[size])

    def _check(
        self, views: Views, touch: Touch, at: Lanes, size: int, element: tuple[int, int], instruction: Instruction
    ) -> None:
        if touch.region == "local":
            row, index = self._local(touch, at, size)
            written = row[index]
        elif touch.run and size == touch.size:
            first = int(at[0]) >> SHIFTS[size]
            written = views[size][first : first + len(at)]
        else:
            written = views[size][at >> SHIFTS[size]]
        if written.all() or not self._is_used(instruction, element[0]):
            return
        lane = touch.active.lanes[int(np.flatnonzero(written == 0)[0])]
        place = int(at[int(np.flatnonzero(written == 0)[0]) if len(at) > 1 else 0])
        message = f"read of {self.findings.target(touch, place)}, which nothing has written"
        what = access_text(instruction)
        self.findings.single("uninitialised-read", message, what, instruction, touch.active.wave, int(lane))

    def _is_used(self, instruction: Instruction, element: int) -> bool:
        """Whether an element of a load is more than moved on."""
        if instruction.opcode[0] not in ("ld", "ldu"):
            return True
        name = self.values.function_of(instruction)
        if name is None:
            return True
        if name not in self._used:
            self._used[name] = used_elements(self.values.image.program.functions[name])
        used = self._used[name].get(id(instruction), ())
        return element < len(used) and used[element]


def _views(data: NDArray[np.uint8]) -> Views:
    padded = data if len(data) % 8 == 0 else np.concatenate((data, np.zeros(-len(data) % 8, np.uint8)))
    return {size: padded.view(dtype) for size, dtype in UNSIGNED.items()}


def _elements(size: int, instruction: Instruction) -> int:
    """How many registers an access of `size` bytes fills or stores."""
    for operand in instruction.operands[:2]:
        if isinstance(operand, VectorOperand) and instruction.opcode[0] in ("ld", "ldu", "st"):
            return len(operand.items)
    return 1


def _pieces(width: int) -> list[tuple[int, int]]:
    """(offset, size) of the words of at most 8 bytes that make up `width` bytes."""
    return [(0, width)] if width in UNSIGNED else [(offset, 8) for offset in range(0, width, 8)]
