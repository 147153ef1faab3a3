"""wmma.load, wmma.store and wmma.mma: matrices of whole warps in fragments of no stated layout.

A program may only load, compute element by element, multiply and store, so any layout will do that all three agree on.
Here element e of lane l is number 32 e + l of the matrix in row-major order, whatever its type and layout in memory, so
that accumulators of two types match. f16 operands have more elements than some shapes need: they hold the matrix again.

Source: PTX ISA, "Matrix multiply-accumulate operation using wmma instructions"; the arithmetic is in `matrix`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rglink.emulate.access import SPACES, address_of
from rglink.emulate.code import Control
from rglink.emulate.errors import Unsupported
from rglink.emulate.frames import Group, Vector
from rglink.emulate.matrix import elements, multiply
from rglink.emulate.memory import BadAccess
from rglink.emulate.ptx import Instruction, Operand
from rglink.emulate.ptx import Vector as VectorOperand
from rglink.emulate.slots import SlotTable
from rglink.emulate.tensor import EVERYONE, fragment_of, put_fragment
from rglink.emulate.warp import sync_control

LANES = np.arange(32)
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "s32": 32, "s8": 8, "u8": 8, "f64": 64}
WIDE_SHAPES = ("m16n16k16", "m8n32k16", "m32n8k16")
# By type of A and B: the shapes, and the types of C and D.
FORMS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "f16": (WIDE_SHAPES, ("f16", "f32")),
    "bf16": (WIDE_SHAPES, ("f32",)),
    "tf32": (("m16n16k8",), ("f32",)),
    "s8": (WIDE_SHAPES, ("s32",)),
    "u8": (WIDE_SHAPES, ("s32",)),
    "f64": (("m8n8k4",), ("f64",)),
}
HALF_REGISTERS = 8


@dataclass(frozen=True)
class Fragment:
    """One matrix of `rows` by `columns` elements of PTX type `kind`, in `registers` of each lane."""

    rows: int
    columns: int
    kind: str
    registers: int

    @property
    def each(self) -> int:
        """Elements of the matrix that a lane holds."""
        return self.rows * self.columns // 32

    @property
    def register_type(self) -> str:
        return "b64" if self.kind == "f64" else "b32"

    def matrix(self, held: Vector) -> Vector:
        """Registers [warps, 32, registers] as patterns [warps, rows, columns]."""
        parts = elements(held, BITS[self.kind]).reshape(len(held), 32, -1)[:, :, : self.each]
        return np.ascontiguousarray(parts.swapaxes(1, 2)).reshape(-1, self.rows, self.columns)

    def held(self, parts: Vector) -> Vector:
        """Elements [warps, 32, each] as registers [warps, 32, registers]; see the module for what is held twice."""
        width = BITS[self.kind]
        count = self.registers * max(1, 32 // width)
        whole = np.ascontiguousarray(np.tile(parts, -(-count // self.each))[:, :, :count])
        return whole.view(f"u{max(width, 32) // 8}")

    def fragment(self, matrix: Vector) -> Vector:
        """The inverse of `matrix`."""
        return self.held(matrix.reshape(-1, self.each, 32).swapaxes(1, 2))


def _fragment(instruction: Instruction, role: str, shape: str, kind: str) -> Fragment:
    """`role` is a, b, c or d. Raises `Unsupported` for a type or shape that this matrix does not have."""
    fits = [shapes for factor, (shapes, sums) in FORMS.items() if (factor == kind if role in "ab" else kind in sums)]
    if not any(shape in shapes for shapes in fits):
        raise Unsupported(f"instruction {instruction.text}")
    m, n, k = (int(part) for part in shape[1:].replace("n", " ").replace("k", " ").split())
    rows, columns = {"a": (m, k), "b": (k, n)}.get(role, (m, n))
    registers = rows * columns // 32 // max(1, 32 // BITS[kind])
    return Fragment(rows, columns, kind, HALF_REGISTERS if role in "ab" and kind == "f16" else registers)


def _items(instruction: Instruction, operand: Operand, fragment: Fragment) -> tuple[Operand, ...]:
    items = operand.items if isinstance(operand, VectorOperand) else ()
    if len(items) != fragment.registers:
        raise Unsupported(f"instruction {instruction.text} with {len(items)} registers")
    return items


def decode_wmma(table: SlotTable, instruction: Instruction, at: int) -> Control:
    """wmma.load, wmma.store and wmma.mma of f16, bf16, tf32, f64, s8 and u8."""
    what = instruction.opcode[1]
    if what == "mma":
        return _decode_mma(table, instruction, at)
    if what not in ("load", "store"):
        raise Unsupported(f"instruction {instruction.text}")
    role, sync, aligned, layout, shape, *spaces, kind = instruction.opcode[2:]
    space = spaces[0].split("::")[0] if spaces else "generic"
    known = role in ("abc" if what == "load" else "d") and (sync, aligned) == ("sync", "aligned")
    if not known or layout not in ("row", "col") or len(spaces) > 1 or space not in (*SPACES, "generic"):
        raise Unsupported(f"instruction {instruction.text}")
    return _decode_memory(table, instruction, at, _fragment(instruction, role, shape, kind), space)


def _decode_memory(table: SlotTable, instruction: Instruction, at: int, fragment: Fragment, space: str) -> Control:
    loads = instruction.opcode[1] == "load"
    first, second, *rest = instruction.operands
    registers, place = (first, second) if loads else (second, first)
    items, kind = _items(instruction, registers, fragment), fragment.register_type
    slots = [table.destination(i, kind) if loads else table.source(i, kind) for i in items]
    by_rows = instruction.opcode[5] == "row"
    where = address_of(table, place)
    stride = table.source(rest[0], "u32") if rest else -1
    numbers = 32 * np.arange(fragment.each)[:, None] + LANES
    row, column = np.divmod(numbers, fragment.columns)
    across, along = (row, column) if by_rows else (column, row)
    size = BITS[fragment.kind] // 8
    default = np.array([fragment.columns if by_rows else fragment.rows], np.uint32)

    def move(group: Group, masks: Vector) -> None:
        r, lane = group.registers, group.lanes & 31
        step = (r[stride] if stride >= 0 else default).astype(np.int64)
        offsets = (across[:, lane] * step + along[:, lane]) * size
        places = r[where] + offsets.astype(np.uint64)
        if loads:
            put_fragment(group, slots, fragment.held(_load(group, instruction, space, places, size)))
        else:
            held = fragment.matrix(fragment_of(group, slots)).reshape(-1, fragment.each, 32)
            _store(group, instruction, space, places, held)

    operands = (
        ([where, *[stride] * (stride >= 0)], slots) if loads else ([where, *[stride] * (stride >= 0), *slots], [])
    )
    return sync_control(table, instruction, at, EVERYONE, move, operands, False)


def _load(group: Group, instruction: Instruction, space: str, places: Vector, size: int) -> Vector:
    """The elements at `places` [each, lanes of the group] as [warps, 32, each]."""
    wave = group.wave
    found = np.zeros((wave.lanes, len(places)), f"u{size}")
    try:
        for number, addresses in enumerate(places):
            if wave.observer is not None:
                wave.observer.on_access("load", space, group, addresses, size, instruction)
            found[group.lanes, number] = wave.spaces.load(space, group, addresses, size)
    except BadAccess as bad:
        wave.fault(bad.text, group, bad.position, instruction, bad.slug)
    return found.reshape(-1, 32, len(places))


def _store(group: Group, instruction: Instruction, space: str, places: Vector, held: Vector) -> None:
    """Write the elements `held` [warps, each, 32] to `places` [each, lanes of the group]."""
    wave = group.wave
    size = held.dtype.itemsize
    try:
        for number, addresses in enumerate(places):
            if wave.observer is not None:
                wave.observer.on_access("store", space, group, addresses, size, instruction)
            wave.spaces.store(space, group, addresses, size, held[:, number].reshape(-1)[group.lanes])
    except BadAccess as bad:
        wave.fault(bad.text, group, bad.position, instruction, bad.slug)


def _decode_mma(table: SlotTable, instruction: Instruction, at: int) -> Control:
    """wmma.mma d, a, b, c."""
    sync, aligned, row, col, shape, *parts = instruction.opcode[2:]
    satfinite = parts[-1:] == ["satfinite"]
    kinds = [part for part in parts if part in BITS]
    result, addend = kinds[0], kinds[-1]
    left, right = kinds[1:3] if len(kinds) == 4 else ("f16", "f16")
    allowed = {"satfinite"} if result == "s32" else {"rn"} if result == "f64" else set()
    others = [part for part in parts if part not in BITS]
    fits = len(kinds) in (2, 4) and left == right and not set(others) - allowed
    if not fits or (sync, aligned) != ("sync", "aligned") or not {row, col} <= {"row", "col"}:
        raise Unsupported(f"instruction {instruction.text}")
    if not {result, addend} <= set(FORMS[left][1]):
        raise Unsupported(f"instruction {instruction.text}")
    d, a, b, c = (
        _fragment(instruction, role, shape, kind)
        for role, kind in zip("dabc", (result, left, right, addend), strict=True)
    )
    target, *operands = instruction.operands
    sources = [
        [table.source(item, one.register_type) for item in _items(instruction, operand, one)]
        for operand, one in zip(operands, (a, b, c), strict=True)
    ]
    targets = [table.destination(item, d.register_type) for item in _items(instruction, target, d)]

    def compute(group: Group, masks: Vector) -> None:
        x, y, z = (one.matrix(fragment_of(group, s)) for one, s in zip((a, b, c), sources, strict=True))
        put_fragment(group, targets, d.fragment(multiply((left, right), (result, addend), satfinite, x, y, z)))

    slots = [slot for one in sources for slot in one]
    return sync_control(table, instruction, at, EVERYONE, compute, (slots, targets), False)
