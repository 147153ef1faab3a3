"""Instructions to steps, done once: arithmetic, moves, comparisons. Memory and control are in `access`, `control`.

An instruction that is not known becomes a step that refuses it when a thread comes there, never a wrong value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rglink.emulate.arithmetic import resolve
from rglink.emulate.code import Step
from rglink.emulate.errors import Unsupported
from rglink.emulate.frames import Active, Vector
from rglink.emulate.memory import LOCAL_BASE, SHARED_BASE, UNSIGNED, WINDOW
from rglink.emulate.ptx import (
    TYPE_SIZES,
    Immediate,
    Instruction,
    Operand,
    Pair,
    Register,
    Sink,
)
from rglink.emulate.ptx import (
    Vector as VectorOperand,
)
from rglink.emulate.signatures import OPERANDS, types_of
from rglink.emulate.slots import WIDE, SlotTable, bits_type

# The carry flag is a register that no program can name.
CARRY = Register("%carry@flag", "pred")


def operand_count(instruction: Instruction, expected: int) -> tuple[Operand, ...]:
    """The operands, which must be `expected`."""
    if len(instruction.operands) != expected:
        raise Unsupported(f"instruction {instruction.text} with {len(instruction.operands)} operands")
    return instruction.operands


def decode_arithmetic(table: SlotTable, instruction: Instruction) -> Step:
    """Any instruction that the arithmetic modules know."""
    name, opcode = instruction.opcode[0], instruction.opcode
    operands = instruction.operands
    wanted = {OPERANDS[name] + (name == "lop3" and isinstance(operands[0], Pair))}
    if name in ("min", "max") and opcode[-1] == "f32" and "xorsign" not in opcode:
        wanted.add(3)
    if len(operands) < 2 or (name != "cvt" and len(operands) - 1 not in wanted):
        raise Unsupported(f"instruction {instruction.text} with {len(operands)} operands")
    operation = resolve(name, opcode[1:])
    result_type, types = types_of(opcode, len(operands) - 1)
    if name in ("addc", "subc", "madc") or "cc" in opcode:
        return _with_carry(table, instruction, operation, result_type, types)
    if name == "lop3":
        return _lop3(table, instruction, operation)
    sources = [table.source(o, t) for o, t in zip(operands[1:], types, strict=True)]
    target = table.destination(operands[0], result_type)
    return plain_step(operation, target, sources)


def plain_step(operation: Callable[..., Vector], target: int, sources: list[int]) -> Step:
    """`target` = `operation`(sources)."""
    if len(sources) == 1:
        (a,) = sources

        def one(group: Active) -> None:
            r = group.registers
            r[target] = operation(r[a])

        return one
    if len(sources) == 2:
        a, b = sources

        def two(group: Active) -> None:
            r = group.registers
            r[target] = operation(r[a], r[b])

        return two
    if len(sources) == 3:
        a, b, c = sources

        def three(group: Active) -> None:
            r = group.registers
            r[target] = operation(r[a], r[b], r[c])

        return three

    def many(group: Active) -> None:
        r = group.registers
        r[target] = operation(*[r[slot] for slot in sources])

    return many


def _with_carry(
    table: SlotTable, instruction: Instruction, operation: Callable[..., Any], result: str, types: list[str]
) -> Step:
    operands = instruction.operands
    sources = [table.source(o, t) for o, t in zip(operands[1:], types, strict=True)]
    if instruction.opcode[0] in ("addc", "subc", "madc"):
        sources.append(table.source(CARRY, "pred"))
    target = table.destination(operands[0], result)
    if "cc" not in instruction.opcode:
        return plain_step(operation, target, sources)
    flag = table.destination(CARRY, "pred")

    def carry(group: Active) -> None:
        r = group.registers
        r[target], r[flag] = operation(*[r[slot] for slot in sources])

    return carry


def _lop3(table: SlotTable, instruction: Instruction, operation: Callable[..., Any]) -> Step:
    """lop3, whose table is a constant, with or without a predicate."""
    target, *rest = instruction.operands
    if not isinstance(rest[3], Immediate):
        raise Unsupported(f"instruction {instruction.text} without a constant table")
    lookup = rest[3].value
    a, b, c = (table.source(operand, "b32") for operand in rest[:3])
    if not isinstance(target, Pair):
        slot = table.destination(target, "b32")
        return plain_step(lambda x, y, z: operation(x, y, z, lookup), slot, [a, b, c])
    other = table.source(rest[4], "pred")
    value, flag = table.destination(target.first, "b32"), table.destination(target.second, "pred")

    def step(active: Active) -> None:
        r = active.registers
        r[value], r[flag] = operation(r[a], r[b], r[c], lookup, r[other])

    return step


def decode_predicate_logic(table: SlotTable, instruction: Instruction) -> Step:
    """and, or, xor, not on predicates."""
    name = instruction.opcode[0]
    ufunc: Mapping[str, Callable[..., Vector]] = {
        "and": np.logical_and,
        "or": np.logical_or,
        "xor": np.logical_xor,
        "not": np.logical_not,
    }
    if name not in ufunc:
        raise Unsupported(f"instruction {instruction.text}")
    target, *rest = operand_count(instruction, 2 if name == "not" else 3)
    sources = [table.source(operand, "pred") for operand in rest]
    return plain_step(ufunc[name], table.destination(target, "pred"), sources)


def decode_mov(table: SlotTable, instruction: Instruction) -> Step:
    """mov, with packing and unpacking of vectors."""
    target, source = operand_count(instruction, 2)
    ptx_type = instruction.opcode[-1]
    if isinstance(target, VectorOperand):
        return _unpack(table, target, source, ptx_type)
    if isinstance(source, VectorOperand):
        return _pack(table, target, source, ptx_type)
    a = table.source(source, ptx_type)
    return plain_step(_same, table.destination(target, ptx_type), [a])


def _same(value: Vector) -> Vector:
    return value


def _unpack(table: SlotTable, target: VectorOperand, source: Operand, ptx_type: str) -> Step:
    count = len(target.items)
    size = TYPE_SIZES[ptx_type] // count
    a = table.source(source, ptx_type)
    if ptx_type == "b128":
        parts = [table.destination(item, "b64") for item in target.items]

        def split(group: Active) -> None:
            r = group.registers
            r[parts[0]], r[parts[1]] = r[a]["low"].copy(), r[a]["high"].copy()

        return split
    dtype, shift = UNSIGNED[size], bits_type(ptx_type).type
    parts = [-1 if isinstance(i, Sink) else table.destination(i, f"b{8 * size}") for i in target.items]

    def unpack(group: Active) -> None:
        r = group.registers
        value = r[a]
        for at, part in enumerate(parts):
            if part >= 0:
                r[part] = (value >> shift(8 * size * at) if at else value).astype(dtype)

    return unpack


def _pack(table: SlotTable, target: Operand, source: VectorOperand, ptx_type: str) -> Step:
    count = len(source.items)
    size = TYPE_SIZES[ptx_type] // count
    parts = [table.source(item, f"b{8 * size}") for item in source.items]
    slot = table.destination(target, ptx_type)
    if ptx_type == "b128":

        def join(group: Active) -> None:
            r = group.registers
            low, high = np.broadcast_arrays(r[parts[0]], r[parts[1]])
            value = np.empty(len(low), WIDE)
            value["low"], value["high"] = low, high
            r[slot] = value

        return join
    dtype = bits_type(ptx_type)

    def pack(group: Active) -> None:
        r = group.registers
        value = r[parts[0]].astype(dtype)
        for at in range(1, count):
            value = value | (r[parts[at]].astype(dtype) << dtype.type(8 * size * at))
        r[slot] = value

    return pack


def decode_setp(table: SlotTable, instruction: Instruction) -> Step:
    """setp, to one predicate or two."""
    ptx_type = instruction.opcode[-1]
    first, a, b, *rest = instruction.operands
    packed = ptx_type in ("f16x2", "bf16x2")
    is_pair = isinstance(first, Pair)
    if packed != is_pair and packed:
        raise Unsupported(f"instruction {instruction.text} without two destinations")
    operation = resolve("setp_pair" if is_pair and not packed else "setp", instruction.opcode[1:])
    sources = [table.source(a, ptx_type), table.source(b, ptx_type), *(table.source(c, "pred") for c in rest)]
    if not isinstance(first, Pair):
        return plain_step(operation, table.destination(first, "pred"), sources)
    p, q = table.destination(first.first, "pred"), table.destination(first.second, "pred")

    def step(active: Active) -> None:
        r = active.registers
        r[p], r[q] = operation(*[r[slot] for slot in sources])

    return step


def decode_set(table: SlotTable, instruction: Instruction) -> Step:
    """set: a comparison as a number."""
    result_type, ptx_type = instruction.opcode[-2:]
    target, a, b, *rest = instruction.operands
    operation = resolve("set", instruction.opcode[1:])
    sources = [table.source(a, ptx_type), table.source(b, ptx_type), *(table.source(c, "pred") for c in rest)]
    return plain_step(operation, table.destination(target, result_type), sources)


def decode_choice(table: SlotTable, instruction: Instruction) -> Step:
    """selp by a predicate, slct by a sign."""
    target, a, b, chooser = operand_count(instruction, 4)
    is_selp = instruction.opcode[0] == "selp"
    ptx_type = instruction.opcode[-1 if is_selp else -2]
    operation = resolve(instruction.opcode[0], instruction.opcode[1:])
    sources = [table.source(a, ptx_type), table.source(b, ptx_type)]
    sources.append(table.source(chooser, "pred" if is_selp else instruction.opcode[-1]))
    return plain_step(operation, table.destination(target, ptx_type), sources)


def decode_cvta(table: SlotTable, instruction: Instruction) -> Step:
    """cvta: global, const and param addresses are generic ones; shared and local lie in windows."""
    target, source = operand_count(instruction, 2)
    to_space = instruction.opcode[1] == "to"
    space = instruction.opcode[2 if to_space else 1].split("::")[0]
    bases = {"global": 0, "const": 0, "param": 0, "shared": SHARED_BASE, "local": LOCAL_BASE}
    if space not in bases:
        raise Unsupported(f"instruction {instruction.text}")
    a, slot = table.source(source, "u64"), table.destination(target, "u64")
    base = np.uint64(bases[space])
    if not base:
        return plain_step(_same, slot, [a])
    return plain_step((lambda x: x - base) if to_space else (lambda x: x + base), slot, [a])


def decode_isspacep(table: SlotTable, instruction: Instruction) -> Step:
    """isspacep: which window a generic address lies in."""
    target, source = operand_count(instruction, 2)
    space = instruction.opcode[1].split("::")[0]
    a, slot = table.source(source, "u64"), table.destination(target, "pred")
    base = {"shared": SHARED_BASE, "local": LOCAL_BASE}.get(space)
    if base is not None:
        low, high = np.uint64(base), np.uint64(base + WINDOW)
        return plain_step(lambda x: (x >= low) & (x < high), slot, [a])
    if space != "global":
        raise Unsupported(f"instruction {instruction.text}")
    limit = np.uint64(LOCAL_BASE + WINDOW)
    return plain_step(lambda x: x >= limit, slot, [a])
