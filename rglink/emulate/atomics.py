"""atom and red: read-modify-write in the order of the lanes, one address at a time.

Lanes that meet at one address are served in ascending order. Many lanes at few addresses are scanned, few lanes at
many addresses are served in rounds: the first lane of each address, then the second, and so on.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions": atom, red. `atom.add.f32` on global memory
flushes subnormals, on shared memory it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rglink.emulate import floats
from rglink.emulate.access import ORDERS, SCOPES, SPACES, VECTORS, address_of, elements
from rglink.emulate.code import Step
from rglink.emulate.errors import Unsupported
from rglink.emulate.frames import Active, Vector
from rglink.emulate.memory import BadAccess, Bits
from rglink.emulate.ptx import TYPE_SIZES, Instruction
from rglink.emulate.slots import SlotTable

Update = Callable[..., Any]
# More lanes than this at one address are scanned by themselves.
CROWD = 48
ASSOCIATIVE: Mapping[str, np.ufunc] = {
    "add": np.add,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min": np.minimum,
    "max": np.maximum,
}
SCALAR: Mapping[str, Callable[..., int]] = {
    "exch": lambda old, new: new,
    "cas": lambda old, expected, new: new if old == expected else old,
    "inc": lambda old, limit: 0 if old >= limit else old + 1,
    "dec": lambda old, limit: limit if old == 0 or old > limit else old - 1,
}
PLAIN: Mapping[str, Update] = {
    "exch": lambda old, new: new,
    "cas": lambda old, expected, new: np.where(old == expected, new, old),
    "inc": lambda old, limit: np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda old, limit: np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1)),
}
TYPES: Mapping[str, tuple[str, ...]] = {
    "add": ("u32", "s32", "u64", "s64", "f32", "f64", "f16", "bf16", "f16x2", "bf16x2"),
    "and": ("b32", "b64", "u32", "s32", "u64", "s64"),
    "or": ("b32", "b64", "u32", "s32", "u64", "s64"),
    "xor": ("b32", "b64", "u32", "s32", "u64", "s64"),
    "min": ("u32", "s32", "u64", "s64", "f16", "bf16", "f16x2", "bf16x2"),
    "max": ("u32", "s32", "u64", "s64", "f16", "bf16", "f16x2", "bf16x2"),
    "exch": ("b32", "b64", "u32", "s32", "u64", "s64", "f32", "f64"),
    "cas": ("b16", "b32", "b64", "u32", "s32", "u64", "s64"),
    "inc": ("u32",),
    "dec": ("u32",),
}


@dataclass(frozen=True)
class Operation:
    """What an atomic does to a word: `update` by vectors, `scan` (if there is one) along lanes, on `value_type`."""

    name: str
    size: int
    update: Update
    scan: np.ufunc | None
    value_type: np.dtype[Any]


def operation_of(name: str, ptx_type: str, flush: bool) -> Operation:
    """The operation `name` on `ptx_type`.

    Raises:
        Unsupported: no such atomic.
    """
    if ptx_type not in TYPES.get(name, ()):
        raise Unsupported(f"atomic {name} of .{ptx_type}")
    size = TYPE_SIZES[ptx_type]
    if name in PLAIN:
        return Operation(name, size, PLAIN[name], None, np.dtype(f"u{size}"))
    if "f" in ptx_type:
        modifiers = ("ftz", ptx_type) if flush and ptx_type == "f32" else (ptx_type,)
        if name == "add":
            modifiers = ("rn", *modifiers)
        return Operation(name, size, floats.BUILDERS[name](modifiers), None, np.dtype(f"u{size}"))
    value_type = np.dtype(f"{'i' if ptx_type[0] == 's' else 'u'}{size}")
    ufunc = ASSOCIATIVE[name]
    bits = np.dtype(f"u{size}")

    def update(old: Bits, value: Bits) -> NDArray[Any]:
        found: NDArray[Any] = ufunc(old.view(value_type), value.view(value_type)).view(bits)
        return found

    return Operation(name, size, update, ufunc, value_type)


def apply(operation: Operation, view: Bits, index: NDArray[np.int64], values: list[Vector], wants_old: bool) -> Vector:
    """Change `view` at `index` lane by lane; returns what each lane found there (nothing if not `wants_old`)."""
    count = len(index)
    values = [np.broadcast_to(value, (count,)) for value in values]
    if count == 1:
        old = view[index]
        view[index] = operation.update(old, *values)
        return old
    if bool((index == index[0]).all()):
        return _crowd(operation, view, int(index[0]), values)
    if operation.scan is np.add and not wants_old:
        np.add.at(view, index, values[0])
        return view[:0]
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    sizes = np.diff(np.append(starts, count))
    old = np.zeros(count, view.dtype)
    for segment in np.flatnonzero(sizes > CROWD).tolist():
        lanes = order[starts[segment] : starts[segment] + sizes[segment]]
        old[lanes] = _crowd(operation, view, int(index[lanes[0]]), [value[lanes] for value in values])
    few = sizes <= CROWD
    starts, sizes = starts[few], sizes[few]
    for turn in range(int(sizes.max()) if len(sizes) else 0):
        lanes = order[starts[sizes > turn] + turn]
        places = index[lanes]
        current = view[places]
        old[lanes] = current
        view[places] = operation.update(current, *[value[lanes] for value in values])
    return old


def _crowd(operation: Operation, view: Bits, place: int, values: list[Vector]) -> Vector:
    """All lanes at one address."""
    before = view[place : place + 1].copy()
    if operation.scan is not None:
        chain = np.concatenate((before, values[0])).view(operation.value_type)
        scanned = operation.scan.accumulate(chain, dtype=operation.value_type).view(view.dtype)
        view[place] = scanned[-1]
        return scanned[:-1]
    old = np.empty(len(values[0]), view.dtype)
    scalar = SCALAR.get(operation.name)
    if scalar is None:  # floating-point operations
        current = before
        for lane in range(len(old)):
            old[lane] = current[0]
            current = operation.update(current, values[0][lane : lane + 1])
        view[place] = current[0]
        return old
    word = int(before[0])
    found = []
    for operands in zip(*[value.tolist() for value in values], strict=True):
        found.append(word)
        word = scalar(word, *operands)
    view[place] = word
    old[:] = found
    return old


def decode_atomic(table: SlotTable, instruction: Instruction) -> Step:
    """atom and red, of global, shared and generic addresses; vectors element by element."""
    name, space, count, ptx_type = _split(instruction)
    has_result = instruction.opcode[0] == "atom"
    operands = instruction.operands[1:] if has_result else instruction.operands
    if "L2::cache_hint" in instruction.opcode:
        operands = operands[:-1]  # a cache policy
    if len(operands) != (3 if name == "cas" else 2):
        raise Unsupported(f"instruction {instruction.text} with {len(instruction.operands)} operands")
    address = address_of(table, operands[0])
    sources = [[table.source(item, ptx_type) for item in elements(operand, count)] for operand in operands[1:]]
    kept, flushed = operation_of(name, ptx_type, False), operation_of(name, ptx_type, True)
    size = TYPE_SIZES[ptx_type]
    targets = []
    if has_result:
        targets = [table.destination(item, ptx_type) for item in elements(instruction.operands[0], count)]
    waits = has_result and name in ("cas", "exch")
    kind = "atomic" if has_result else "reduction"

    def step(active: Active) -> None:
        wave, r = active.wave, active.registers
        addresses = r[address]
        if wave.observer is not None:
            wave.observer.on_access(kind, space, active, addresses, size * count, instruction)
        active.waits += waits
        try:
            for at in range(count):
                place = addresses + np.uint64(at * size) if at else addresses
                values = [r[slots[at]] for slots in sources]
                found = _everywhere(active, space, place, (kept, flushed), values, has_result)
                if targets:
                    r[targets[at]] = found
        except BadAccess as bad:
            wave.fault(bad.text, active, bad.position, instruction, bad.slug)

    return step


def _split(instruction: Instruction) -> tuple[str, str, int, str]:
    """(operation, space, elements, type): in any order, for manuals and ptxas write vectors in two orders."""
    name, space, count, ptx_type = "", "generic", 1, ""
    for part in instruction.opcode[1:]:
        base = part.split("::")[0]
        if part in TYPES:
            name = part
        elif base in SPACES:
            space = base
        elif part in VECTORS:
            count = VECTORS[part]
        elif part in TYPE_SIZES and not ptx_type:
            ptx_type = part
        elif part not in ORDERS and part not in SCOPES and part != "noftz" and base not in ("L1", "L2"):
            raise Unsupported(f"instruction {instruction.text}: .{part}")
    if not name or not ptx_type or (name in ("min", "max") and "f" in ptx_type and count == 1):
        raise Unsupported(f"instruction {instruction.text}")
    return name, space, count, ptx_type


def _everywhere(
    active: Active,
    space: str,
    addresses: Vector,
    operations: tuple[Operation, Operation],
    values: list[Vector],
    wants_old: bool,
) -> Vector:
    """Apply in each kind of memory that the addresses are in; the second operation is that for global memory."""
    spaces = active.wave.spaces
    size = operations[0].size
    old = np.zeros(0, f"u{size}")
    for view, index, positions in spaces.places(space, active, addresses, size):
        chosen = operations[1] if view is spaces.arena.views[size] else operations[0]
        if positions is None:
            return apply(chosen, view, index, values, wants_old)
        if not len(old):
            old = np.zeros(active.count, f"u{size}")
        part = [value if len(value) == 1 else value[positions] for value in values]
        found = apply(chosen, view, index, part, wants_old)
        if wants_old:
            old[positions] = found
    return old
