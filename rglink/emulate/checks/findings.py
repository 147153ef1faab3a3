"""The reports of a launch as they come up: each pair of instructions once."""

from __future__ import annotations

from rglink.demangle import demangle
from rglink.emulate.checks.order import THREAD_MASK, TIME_SHIFT, Order
from rglink.emulate.checks.reports import Place, Report, Shape, place_of
from rglink.emulate.checks.touch import Touch
from rglink.emulate.memory import GLOBAL_BASE
from rglink.emulate.ptx import TYPE_SIZES, Instruction
from rglink.emulate.ptx import Vector as VectorOperand
from rglink.emulate.wave import Wave

MOST_REPORTS = 100
ACCESSES = {
    "st": "write",
    "ld": "read",
    "ldu": "read",
    "ldmatrix": "read",
    "stmatrix": "write",
    "cp": "async copy",
    "mbarrier": "mbarrier operation",
}


class Findings:
    """Collects reports of the kinds in `checks`; more than `MOST_REPORTS` are not kept."""

    def __init__(self, kernel: str, checks: frozenset[str], order: Order) -> None:
        self.kernel, self.checks, self.order = kernel, checks, order
        self.reports: list[Report] = []
        self._seen: set[tuple[object, ...]] = set()
        self.shared_names: list[tuple[int, int, str]] = []

    def add(self, key: tuple[object, ...], report: Report) -> None:
        """Keep a report unless its kind is not asked for or its `key` has one."""
        if report.kind in self.checks and (report.kind, *key) not in self._seen and len(self.reports) < MOST_REPORTS:
            self._seen.add((report.kind, *key))
            self.reports.append(report)

    def new(self, kind: str, *key: object) -> bool:
        """Whether a report of this kind and key would be kept."""
        return kind in self.checks and (kind, *key) not in self._seen

    def position(self, number: int) -> tuple[Shape, Shape]:
        """(block, thread) of a thread by its number in the grid, from 1."""
        wave = self.order.wave
        block, thread = divmod(number - 1, self.order.threads)
        return _unfolded(block, wave.grid), _unfolded(thread, wave.block)

    def race(
        self, touch: Touch, offset: int, instruction: Instruction, lane: int, before: Instruction | None, entry: int
    ) -> None:
        """Two accesses that nothing orders: that of `lane` now, and the one that left `entry`."""
        key = (id(before), id(instruction))
        if not self.new("race", *key) or not self.new("race", *key[::-1]):
            return
        here = touch.active.wave.position(lane)
        there = self.position(entry & THREAD_MASK)
        first = place_of(access_text(instruction), instruction, here)
        when = "" if entry >> TIME_SHIFT == self.order.now else "earlier "
        second = place_of(when + (access_text(before) if before else "access"), before, there)
        scope = "the same block" if here[0] == there[0] else "different blocks"
        verbs = " and ".join(sorted((_verb(instruction), _verb(before)), reverse=True))
        message = f"data race on {self.target(touch, offset)}: {verbs} by threads of {scope} are not ordered"
        self.add(key, Report("race", message, (first, second), self.kernel))

    def single(self, kind: str, message: str, what: str, instruction: Instruction, wave: Wave, lane: int) -> None:
        """A report about one thread at one instruction."""
        if self.new(kind, id(instruction)):
            place = place_of(what, instruction, wave.position(lane))
            self.add((id(instruction),), Report(kind, message, (place,), self.kernel))

    def pair(self, kind: str, message: str, places: tuple[Place, ...], *key: object) -> None:
        """A report about several places."""
        self.add(key, Report(kind, message, places, self.kernel))

    def target(self, touch: Touch, offset: int) -> str:
        """What lies at a byte offset of a region, in words."""
        wave = touch.active.wave
        if touch.region == "shared":
            within = offset % max(wave.spaces.shared_stride, 1)
            for start, size, name in self.shared_names:
                if start <= within < start + size:
                    return f"shared {demangle(name)}+{within - start}"
            return f"shared memory at byte {within}"
        if touch.region == "local":
            return f"local memory at byte {offset}"
        allocation = wave.arena.find(GLOBAL_BASE + offset)
        if allocation is None:
            return f"global memory at 0x{GLOBAL_BASE + offset:x}"
        return f"{allocation.name}+{GLOBAL_BASE + offset - allocation.start}"


def access_text(instruction: Instruction) -> str:
    """`write of 4 bytes`, `atomic cas of 4 bytes`."""
    width = TYPE_SIZES.get(instruction.opcode[-1], 0)
    width *= max((len(o.items) for o in instruction.operands if isinstance(o, VectorOperand)), default=1)
    return f"{_verb(instruction)} of {width} bytes" if width else _verb(instruction)


def _verb(instruction: Instruction | None) -> str:
    if instruction is None:
        return "access"
    name = instruction.opcode[0]
    return ACCESSES.get(name, "atomic") if name in ACCESSES else "atomic update"


def _unfolded(linear: int, shape: Shape) -> Shape:
    return linear % shape[0], linear // shape[0] % shape[1], linear // (shape[0] * shape[1])
