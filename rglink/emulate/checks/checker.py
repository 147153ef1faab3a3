"""The observer that runs all checks of one launch."""

from __future__ import annotations

from rglink.emulate.checks.barriers import BarrierCheck
from rglink.emulate.checks.copies import CopyCheck
from rglink.emulate.checks.divisions import DivisionCheck
from rglink.emulate.checks.findings import Findings
from rglink.emulate.checks.order import Order
from rglink.emulate.checks.races import RaceCheck
from rglink.emulate.checks.signals import SignalCheck
from rglink.emulate.checks.strong import StrongCheck
from rglink.emulate.checks.touch import touches
from rglink.emulate.checks.validity import ValidityCheck
from rglink.emulate.checks.values import StoredValues
from rglink.emulate.frames import Active, Lanes
from rglink.emulate.image import Image
from rglink.emulate.memory import Addresses
from rglink.emulate.ptx import Instruction
from rglink.emulate.wave import Wave

KINDS = {"async-load": "load", "async-store": "store", "reduction": "atomic"}


class Checker:
    """An `Observer`. `outputs` are ranges (address, bytes) that hold nothing yet when the kernel starts."""

    def __init__(
        self, image: Image, threads: int, checks: frozenset[str], outputs: tuple[tuple[int, int], ...] = ()
    ) -> None:
        values = StoredValues(image)
        self.order = Order(threads)
        self.findings = Findings(image.kernel.name, checks, self.order)
        self.findings.shared_names = _shared_variables(image)
        self.races = RaceCheck(self.order, self.findings, values)
        self.strong = StrongCheck(self.order)
        self.validity = ValidityCheck(self.findings, values)
        self.barriers = BarrierCheck(self.order, self.findings)
        self.copies = CopyCheck(self.order, self.findings, self.races)
        self.signals = SignalCheck(image, self.strong, self.copies)
        self.divisions = DivisionCheck(image, self.findings)
        self.outputs = outputs
        self.checks = checks
        self.follows = bool(checks & {"race", "async-copy"})

    def on_wave(self, wave: Wave) -> None:
        """See `Observer`."""
        first = not hasattr(self.order, "wave")
        self.order.begin_wave(wave)
        self.races.begin_wave(wave)
        self.strong.begin_wave(wave)
        self.validity.begin_wave(wave)
        self.barriers.begin_wave(wave)
        self.copies.begin_wave(wave)
        if first:
            for address, size in self.outputs:
                self.validity.track(wave, address, size)

    def on_access(
        self, kind: str, space: str, active: Active, addresses: Addresses, size: int, instruction: Instruction
    ) -> None:
        """See `Observer`."""
        if space in ("const", "param") or not active.count:
            return
        for touch in touches(space, active, addresses, size):
            plain = KINDS.get(kind, kind)
            if "uninitialised-read" in self.checks:
                self.validity.access(plain, touch, instruction)
            if touch.region == "local" or not self.follows:
                continue
            self.copies.touch(touch, instruction)
            self.races.access(plain, touch, instruction)
            meaning = self.races.meanings.of(instruction)
            if meaning.strong:
                self.strong.access(plain, touch, meaning)
            if kind == "async-store" and "bulk" not in instruction.opcode:
                self.copies.start(touch, instruction)

    def on_fence(self, active: Active, instruction: Instruction) -> None:
        """See `Observer`."""
        if instruction.opcode[0] == "cp":
            self.copies.wait(active, instruction)
            return
        meaning = self.races.meanings.of(instruction)
        if meaning.strong:
            self.strong.fence(active, meaning)

    def on_barrier(self, active: Active, barrier: int, instruction: Instruction, arrives: bool) -> None:
        """See `Observer`."""
        if arrives:
            self.barriers.arrive(active, barrier, instruction)
        else:
            self.barriers.leave(active, barrier)

    def on_warp_sync(self, active: Active, masks: Addresses, instruction: Instruction) -> None:
        """See `Observer`."""
        if instruction.opcode[:2] == ("bar", "warp"):
            self.order.warp_barrier(active.lanes, masks)

    def on_branch(self, active: Active, taken: int, instruction: Instruction) -> None:
        """See `Observer`."""

    def on_run(self, active: Active, code_number: int, first: int, last: int) -> None:
        """See `Observer`."""
        self.divisions.run(active, code_number, first, last)
        if self.follows:
            self.signals.run(active, code_number, first, last)

    def on_exit(self, lanes: Lanes) -> None:
        """See `Observer`."""

    def on_heap(self, active: Active, address: int, size: int, freed: bool) -> None:
        """See `Observer`."""
        if not freed:
            self.validity.track(active.wave, address, size)


def _shared_variables(image: Image) -> list[tuple[int, int, str]]:
    """(offset, size, name) of the kernel's shared variables; dynamic memory has what is left."""
    found: list[tuple[int, int, str]] = []
    for (owner, name), offset in image.shared.items():
        variables = image.program.variables if not owner else {}
        own = {v.name: v for v in image.program.functions[owner].variables} if owner else {}
        size = (variables.get(name) or own[name]).size
        found.append((offset, size or (1 << 30), name))
    return sorted(found)
