"""Operands as slots of a frame: registers, constants, and the cells of parameters.

Parameters of functions live in `.param` memory, but only calls can see them: each place that is read or written
becomes a register of its own, a cell; where accesses overlap in other ways, each byte does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from rglink.emulate.code import Code, Flow, Step
from rglink.emulate.constants import bits_in_width
from rglink.emulate.errors import Unsupported
from rglink.emulate.frames import Active, Vector
from rglink.emulate.memory import UNSIGNED
from rglink.emulate.ptx import (
    TYPE_SIZES,
    FloatImmediate,
    Function,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Parameter,
    Register,
    Special,
    Symbol,
)

WIDE = np.dtype([("low", np.uint64), ("high", np.uint64)])  # .b128
FLOATS = frozenset(("f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64", "tf32"))
# (offset, size) of a cell in its parameter -> its slot.
Cells = dict[tuple[int, int], int]


class Names(Protocol):
    """What the image of a kernel knows of names and special registers."""

    def address(self, symbol: str) -> int | None:
        """The address of a variable or function in its own space, if it has a fixed one."""

    def parameter_offset(self, name: str) -> int | None:
        """Where the kernel's parameter lies in its parameter buffer."""

    def parameter_address(self, name: str) -> Callable[[Active], Vector] | None:
        """A function that gives the address of a kernel's parameter."""

    def special(self, name: str) -> Callable[[Active], Vector]:
        """A function that gives a special register's value for a group."""


def bits_type(ptx_type: str) -> np.dtype[Any]:
    """The NumPy type that holds the bits of a PTX type."""
    if ptx_type == "pred":
        return np.dtype(np.bool_)
    if ptx_type == "b128":
        return WIDE
    size = TYPE_SIZES.get(ptx_type)
    if size is None:
        raise Unsupported(f".{ptx_type}")
    return UNSIGNED[size]


def is_signed(ptx_type: str) -> bool:
    return ptx_type[0] == "s" and ptx_type[1:].isdigit()


def resized(value: Vector, target: np.dtype[Any], signed: bool) -> Vector:
    """`value` cut or extended to the width of `target`."""
    if value.dtype == target:
        return value
    if signed and value.dtype.itemsize < target.itemsize:
        return value.view(f"i{value.dtype.itemsize}").astype(f"i{target.itemsize}").view(target)
    return value.astype(target)


class SlotTable:
    """The slots of one function as its instructions are decoded.

    Between `begin` and `end` it collects what the instruction at hand reads and writes, and the steps that must come
    before and after it.
    """

    def __init__(self, function: Function, code: Code, names: Names) -> None:
        self.function, self.code, self.names = function, code, names
        self.registers: dict[int, np.dtype[Any]] = {}
        self.by_name: dict[str, int] = {}
        self.constants: dict[tuple[str, int], int] = {}
        self.cells: dict[str, Cells] = {}
        self.before: list[Step] = []
        self.after: list[Step] = []
        self.flow = Flow()
        self.local_offsets: dict[str, int] = {}
        self._lay_out_local()
        self._lay_out_cells()

    def begin(self) -> None:
        """Start an instruction."""
        self.before, self.after, self.flow = [], [], Flow()

    def new(self, dtype: np.dtype[Any], name: str = "") -> int:
        """A slot of its own; with a name, a register that may be live."""
        slot = len(self.code.template)
        self.code.template.append(np.zeros(1, dtype))
        self.registers[slot] = dtype
        if name:
            self.by_name[name] = slot
        return slot

    def register(self, register: Register) -> int:
        """The slot of a register."""
        slot = self.by_name.get(register.name)
        return self.new(bits_type(register.type), register.name) if slot is None else slot

    def constant(self, value: int, dtype: np.dtype[Any]) -> int:
        """A slot that holds `value` for all lanes."""
        if dtype.kind == "u":
            value &= (1 << 8 * dtype.itemsize) - 1
        key = (dtype.str, value)
        slot = self.constants.get(key)
        if slot is None:
            slot = len(self.code.template)
            vector = np.zeros(1, dtype)
            if dtype == WIDE:
                vector[0] = (value & (2**64 - 1), (value >> 64) & (2**64 - 1))
            else:
                vector[0] = value
            self.code.template.append(vector)
            self.constants[key] = slot
        return slot

    def source(self, operand: Operand, ptx_type: str) -> int:
        """The slot that holds an operand of `ptx_type`, cut or extended to its width.

        Raises:
            Unsupported: an operand of a kind that has no value.
        """
        dtype = bits_type(ptx_type)
        if isinstance(operand, Register):
            slot = self.register(operand)
            self.flow.reads |= 1 << slot
            return slot if self.registers[slot] == dtype else self._cast(slot, dtype, is_signed(ptx_type))
        if isinstance(operand, Immediate):
            if ptx_type in FLOATS:
                raise Unsupported(f"integer {operand.value} as a .{ptx_type} operand")
            return self.constant(bool(operand.value) if ptx_type == "pred" else operand.value, dtype)
        if isinstance(operand, FloatImmediate):
            if dtype.itemsize not in (4, 8):
                raise Unsupported(f"a floating constant as a .{ptx_type} operand")
            return self.constant(bits_in_width(operand, dtype.itemsize), dtype)
        if isinstance(operand, Special):
            return self.computed(self.names.special(operand.name), dtype)
        if isinstance(operand, Symbol):
            return self._symbol(operand, dtype)
        if isinstance(operand, Negated):
            slot = self.source(operand.register, "pred")
            return self.computed(lambda g: ~g.registers[slot], dtype)
        raise Unsupported(f"an operand of the form {type(operand).__name__}")

    def _cast(self, slot: int, dtype: np.dtype[Any], signed: bool) -> int:
        if np.bool_ in (dtype, self.registers[slot]) or WIDE in (dtype, self.registers[slot]):
            raise Unsupported("a register of another kind than the instruction's type")
        return self.computed(lambda g: resized(g.registers[slot], dtype, signed), dtype)

    def computed(self, value: Callable[[Active], Vector], dtype: np.dtype[Any]) -> int:
        """A slot filled before the instruction runs."""
        slot = self.new(dtype)

        def fill(group: Active) -> None:
            found = value(group)
            group.registers[slot] = found if found.dtype == dtype else found.astype(dtype)

        self.before.append(fill)
        return slot

    def _symbol(self, operand: Symbol, dtype: np.dtype[Any]) -> int:
        offset = operand.offset
        base = self.local_offsets.get(operand.name)
        if base is not None:
            within = base + offset
            return self.computed(lambda g: np.array([g.stack + within], dtype), dtype)
        address = self.names.address(operand.name)
        if address is not None:
            return self.constant(address + offset, dtype)
        parameter = self.names.parameter_address(operand.name)
        if parameter is not None:
            return self.computed(lambda g: parameter(g) + np.uint64(offset), dtype)
        if operand.name in self.cells:
            raise Unsupported(f"the address of parameter {operand.name}")
        raise Unsupported(f"unknown name {operand.name}")

    def destination(self, operand: Operand, ptx_type: str) -> int:
        """The slot that a result of `ptx_type` goes to; a wider register gets it extended afterwards.

        Raises:
            Unsupported: not a register, or a narrower one.
        """
        dtype = bits_type(ptx_type)
        if not isinstance(operand, Register):
            return self.new(dtype)  # `_`
        slot = self.register(operand)
        self.flow.kills |= 1 << slot
        target = self.registers[slot]
        if target == dtype:
            return slot
        if np.bool_ in (target, dtype) or WIDE in (target, dtype):
            raise Unsupported("a register of another kind than the instruction's type")
        narrow, signed = self.new(dtype), is_signed(ptx_type)

        def widen(group: Active) -> None:
            group.registers[slot] = resized(group.registers[narrow], target, signed)

        self.after.append(widen)
        return narrow

    def _lay_out_local(self) -> None:
        end = 0
        for variable in self.function.variables:
            if variable.space == "local":
                end = -(-end // variable.align) * variable.align
                self.local_offsets[variable.name] = end
                end += variable.size
        self.code.local_bytes = -(-end // 16) * 16

    def _lay_out_cells(self) -> None:
        """Make cells of every parameter: of the function's own, unless it is a kernel, and those it passes on."""
        sizes: dict[str, int] = {v.name: v.size for v in self.function.variables if v.space == "param"}
        formals: Sequence[Parameter] = () if self.function.is_kernel else self.function.parameters
        for parameter in (*formals, *self.function.results):
            if parameter.in_register:
                slot = self.register(Register(parameter.name, parameter.type))
                self.cells[parameter.name] = {(0, self.registers[slot].itemsize): slot}
            else:
                sizes[parameter.name] = parameter.size
        places: dict[str, set[tuple[int, int]]] = {name: set() for name in sizes}
        for instruction in self.function.instructions:
            for name, offset, size in parameter_accesses(instruction):
                if name in places:
                    places[name].add((offset, size))
        in_memory = self._parameters_in_memory(formals)
        for name, used in places.items():
            used = in_memory.get(name, used)
            self.cells[name] = self._cells_for(name, sizes[name], used)
        for name in in_memory:
            base = self.local_offsets[name]
            self.code.spills += [(base + offset, size, slot) for (offset, size), slot in self.cells[name].items()]

    def _parameters_in_memory(self, formals: Sequence[Parameter]) -> dict[str, set[tuple[int, int]]]:
        """Formal parameters whose addresses are taken, with cells for all of their bytes; each gets local memory."""
        taken = {name for instruction in self.function.instructions for name in addresses_taken(instruction)}
        found: dict[str, set[tuple[int, int]]] = {}
        for parameter in formals:
            if parameter.name not in taken or parameter.in_register:
                continue
            base = -(-self.code.local_bytes // 16) * 16
            self.local_offsets[parameter.name] = base
            self.code.local_bytes = base + -(-parameter.size // 16) * 16
            words = {(at, 8) for at in range(0, parameter.size - 7, 8)}
            found[parameter.name] = words | {(at, 1) for at in range(parameter.size & ~7, parameter.size)}
        return found

    def _cells_for(self, name: str, size: int, used: set[tuple[int, int]]) -> Cells:
        ordered = sorted(used)
        apart = all(a[0] + a[1] <= b[0] for a, b in pairwise(ordered))
        if not apart or any(offset + width > size for offset, width in ordered):
            ordered = [(offset, 1) for offset in range(size)]
        return {
            (offset, width): self.new(WIDE if width == 16 else UNSIGNED[width], f"{name}+{offset}")
            for offset, width in ordered
        }


def parameter_accesses(instruction: Instruction) -> list[tuple[str, int, int]]:
    """(parameter, offset, size) of each element that a `ld.param` or `st.param` touches by name."""
    from rglink.emulate.ptx import Address
    from rglink.emulate.ptx import Vector as VectorOperand

    if instruction.opcode[0] not in ("ld", "ldu", "st") or not is_param_space(instruction.opcode):
        return []
    found: list[tuple[str, int, int]] = []
    size = TYPE_SIZES.get(instruction.opcode[-1], 8)
    count = max((len(o.items) for o in instruction.operands if isinstance(o, VectorOperand)), default=1)
    for operand in instruction.operands:
        if isinstance(operand, Address) and isinstance(operand.base, Symbol):
            start = operand.base.offset + operand.offset
            found += [(operand.base.name, start + size * at, size) for at in range(count)]
    return found


def addresses_taken(instruction: Instruction) -> list[str]:
    """The names whose addresses an instruction takes as values: arguments of calls are passed, not taken."""
    if instruction.opcode[0] == "call":
        return []
    return [operand.name for operand in instruction.operands if isinstance(operand, Symbol)]


def is_param_space(opcode: tuple[str, ...]) -> bool:
    """Whether `.param`, `.param::func` or `.param::entry` is among the dot parts."""
    return any(part.split("::")[0] == "param" for part in opcode)


def cell_reader(cells: Mapping[tuple[int, int], int], offset: int, size: int) -> tuple[Callable[[Active], Vector], int]:
    """A function that reads `size` bytes at `offset` of a parameter, and the bit set of the slots it reads."""
    exact = cells.get((offset, size))
    if exact is not None:
        return lambda g: g.registers[exact], 1 << exact
    dtype = UNSIGNED[size]
    pieces: list[tuple[int, int, int]] = []  # slot, shift left of the piece, shift right of it
    reads = 0
    for (start, width), slot in cells.items():
        if start < offset + size and offset < start + width:
            pieces.append((slot, 8 * max(start - offset, 0), 8 * max(offset - start, 0)))
            reads |= 1 << slot

    def read(group: Active) -> Vector:
        total = np.zeros(1, np.uint64)
        for slot, left, right in pieces:
            part = group.registers[slot].astype(np.uint64)
            total = total | ((part >> np.uint64(right)) << np.uint64(left))
        return total.astype(dtype)

    return read, reads
