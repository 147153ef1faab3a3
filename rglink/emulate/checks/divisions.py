"""Integer divisions by zero: PTX gives a value that depends on the machine."""

from __future__ import annotations

import numpy as np

from rglink.emulate.checks.findings import Findings
from rglink.emulate.frames import Active, Group
from rglink.emulate.image import Image
from rglink.emulate.ptx import Instruction, Operand, Register

# (instruction, slot of the divisor, slot of the guard or -1, whether it is negated)
Division = tuple[Instruction, int, int, bool]


class DivisionCheck:
    """Looks at the divisors of each run of instructions after it."""

    def __init__(self, image: Image, findings: Findings) -> None:
        self.image, self.findings = image, findings
        self._runs: dict[tuple[int, int, int], tuple[Division, ...]] = {}

    def run(self, active: Active, number: int, first: int, last: int) -> None:
        """Instructions `first` to `last` of a function ran for the lanes."""
        divisions = self._runs.get((number, first, last))
        if divisions is None:
            divisions = self._runs[number, first, last] = self._divisions(active, number, first, last)
        for instruction, slot, guard, negated in divisions:
            r = active.registers
            zero = r[slot] == 0
            if not zero.any():
                continue
            if guard >= 0:
                zero = zero & (~r[guard] if negated else r[guard])
            if zero.any():
                at = int(np.flatnonzero(zero)[0])
                text = "integer division by zero, whose result depends on the machine"
                wave = active.wave
                self.findings.single("division-by-zero", text, "division", instruction, wave, int(active.lanes[at]))

    def _divisions(self, active: Active, number: int, first: int, last: int) -> tuple[Division, ...]:
        """The divisions of a run whose divisors are still in their registers after it."""
        function = self.image.by_number[number]
        assert isinstance(active, Group)
        by_name = self.image.code(function.name)[1].by_name
        found: list[Division] = []
        written: set[str] = set()
        for instruction in reversed(function.instructions[first : last + 1]):
            divisor = instruction.operands[2] if len(instruction.operands) > 2 else None
            guard = instruction.guard
            names = {divisor.name} if isinstance(divisor, Register) else set()
            if guard is not None:
                names.add(guard[0].name)
            if _divides(instruction, divisor) and not names & (written | _written(instruction)):
                assert isinstance(divisor, Register)
                slot = -1 if guard is None else by_name[guard[0].name]
                found.append((instruction, by_name[divisor.name], slot, guard is not None and guard[1]))
            written |= _written(instruction)
        return tuple(found)


def _divides(instruction: Instruction, divisor: Operand | None) -> bool:
    name, ptx_type = instruction.opcode[0], instruction.opcode[-1]
    return name in ("div", "rem") and ptx_type[0] in "us" and isinstance(divisor, Register)


def _written(instruction: Instruction) -> set[str]:
    first = instruction.operands[0] if instruction.operands else None
    return {first.name} if isinstance(first, Register) and instruction.opcode[0] not in ("st", "red") else set()
