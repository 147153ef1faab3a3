"""A listing of what a launch executed, instruction by instruction, in the machine's order (`rgrun --trace`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TextIO

from rglink.demangle import demangle
from rglink.emulate.frames import Active, Lanes
from rglink.emulate.memory import Addresses
from rglink.emulate.ptx import Instruction
from rglink.emulate.wave import Shape, Wave

# A loop without end would fill a disk long before the step budget ends it.
MOST_LINES = 1_000_000


@dataclass
class ListingObserver:
    """Writes one line for each instruction of each group of threads: where, what, by whom, on which addresses."""

    file: TextIO
    most_lines: int = MOST_LINES
    lines: int = 0
    _accesses: dict[int, str] = field(default_factory=dict)
    _wave: Wave | None = None

    def on_wave(self, wave: Wave) -> None:
        """Say which blocks run together from here on."""
        self._wave = wave
        last = wave.first_block + wave.blocks - 1
        self._write(
            f"# {demangle(wave.kernel)}: blocks {wave.first_block} to {last} of grid {_by(wave.grid)},"
            f" block {_by(wave.block)}"
        )

    def on_access(
        self, kind: str, space: str, active: Active, addresses: Addresses, size: int, instruction: Instruction
    ) -> None:
        """Keep the addresses for the line of the instruction."""
        if self.lines < self.most_lines and len(addresses):
            low, high = int(addresses.min()), int(addresses.max())
            span = f"0x{low:x}" if low == high else f"0x{low:x}..0x{high:x}"
            self._accesses[id(instruction)] = f"  {kind} {span}, {size} bytes"

    def on_run(self, active: Active, code_number: int, first: int, last: int) -> None:
        """Write the lines of a run."""
        wave = self._wave
        if wave is None or self.lines >= self.most_lines:
            return
        who = _who(wave, active.lanes)
        for at in range(first, last + 1):
            try:
                instruction = wave.instruction_of(code_number, at)
            except IndexError:  # the end of a body without ret, which is no instruction
                continue
            where = instruction.place or f"PTX line {instruction.line}"
            guard = ""
            if instruction.guard is not None:
                guard = f"@{'!' if instruction.guard[1] else ''}{instruction.guard[0].name} "
            self._write(f"{where}  {guard}{instruction.text}  {who}{self._accesses.get(id(instruction), '')}")
        self._accesses.clear()

    def on_fence(self, active: Active, instruction: Instruction) -> None:
        """Has its line by its run."""

    def on_barrier(self, active: Active, barrier: int, instruction: Instruction, arrives: bool) -> None:
        """Tell when threads leave a barrier; that they come to it shows by their run."""
        if not arrives and self._wave is not None:
            self._write(f"# barrier {barrier} opens  {_who(self._wave, active.lanes)}")

    def on_warp_sync(self, active: Active, masks: Addresses, instruction: Instruction) -> None:
        """Has its line by its run."""

    def on_branch(self, active: Active, taken: int, instruction: Instruction) -> None:
        """Has its line by its run."""

    def on_exit(self, lanes: Lanes) -> None:
        """Tell who has ended."""
        if self._wave is not None:
            self._write(f"# end  {_who(self._wave, lanes)}")

    def on_heap(self, active: Active, address: int, size: int, freed: bool) -> None:
        """Tell of the device heap."""
        self._write(f"# heap: {size} bytes at 0x{address:x} {'freed' if freed else 'taken'}")

    def _write(self, line: str) -> None:
        if self.lines < self.most_lines:
            self.file.write(line + "\n")
        elif self.lines == self.most_lines:
            self.file.write(f"# cut here, after {self.most_lines} lines\n")
        self.lines += 1


def _who(wave: Wave, lanes: Lanes) -> str:
    block, thread = wave.position(int(lanes[0]))
    one = f"block {_by(block)} thread {_by(thread)}"
    return one if len(lanes) == 1 else f"{len(lanes)} threads from {one}"


def _by(shape: Shape) -> str:
    return ",".join(map(str, shape))
