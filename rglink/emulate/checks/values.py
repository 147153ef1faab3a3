"""What a store is about to write: equal values written by several threads are no error worth a report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rglink.emulate.constants import bits_in_width
from rglink.emulate.frames import Active, Vector
from rglink.emulate.image import Image
from rglink.emulate.ptx import TYPE_SIZES, FloatImmediate, Immediate, Instruction, Operand, Register
from rglink.emulate.ptx import Vector as VectorOperand
from rglink.emulate.slots import WIDE, bits_type, resized

Bytes = NDArray[np.uint8]


class StoredValues:
    """Finds the values of stores in the registers of their lanes."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self._owners: dict[int, str] = {}

    def function_of(self, instruction: Instruction) -> str | None:
        """The function that an instruction is part of."""
        if not self._owners:
            for function in self.image.program.functions.values():
                for one in function.instructions:
                    self._owners[id(one)] = function.name
        return self._owners.get(id(instruction))

    def stored(self, active: Active, instruction: Instruction, size: int) -> Bytes | None:
        """The bytes that each lane writes, shape (lanes, size); None for what is no plain store."""
        name = self.function_of(instruction)
        if instruction.opcode[0] != "st" or name is None:
            return None
        by_name = self.image.code(name)[1].by_name
        operand = instruction.operands[1]
        items = operand.items if isinstance(operand, VectorOperand) else (operand,)
        parts: list[Bytes] = []
        for item in items:
            value = _value(active, item, instruction.opcode[-1], by_name.get)
            if value is None:
                return None
            wide = np.ascontiguousarray(np.broadcast_to(value, (active.count,)))
            parts.append(wide.view(np.uint8).reshape(active.count, -1))
        found = np.concatenate(parts, axis=1)
        return found if found.shape[1] == size else None


def _value(active: Active, item: Operand, ptx_type: str, slot_of: Callable[[str], int | None]) -> Vector | None:
    dtype: np.dtype[Any] = bits_type(ptx_type)
    if dtype == WIDE:
        return None
    if isinstance(item, Register):
        slot = slot_of(item.name)
        return None if slot is None else resized(active.registers[slot], dtype, False)
    if isinstance(item, Immediate):
        return np.array([item.value & ((1 << 8 * TYPE_SIZES[ptx_type]) - 1)], dtype)
    if isinstance(item, FloatImmediate):
        return np.array([bits_in_width(item, dtype.itemsize)], dtype)
    return None
