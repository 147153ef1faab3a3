"""Whether a loaded value is used, or only moved on.

Copies of structs read padding that nobody wrote; that is no mistake. A value is used when an instruction that is not a
move, selection, packing, store or argument reads it.
"""

from __future__ import annotations

from collections.abc import Iterator

from rglink.emulate.ptx import Address, Arguments, Function, Instruction, Negated, Operand, Pair, Register, Vector

# Results of these are what they were given, or pieces of it.
MOVES = frozenset(("mov", "selp", "cvt", "shl", "shr", "or", "and", "prmt", "bfi", "bfe", "ld"))


def used_elements(function: Function) -> dict[int, tuple[bool, ...]]:
    """For each load, by the `id` of its instruction, which of its elements are used."""
    feeds: dict[str, set[str]] = {}
    used: set[str] = set()
    for instruction in function.instructions:
        if instruction.guard is not None:
            used.add(instruction.guard[0].name)
        _note_uses(instruction, feeds, used)
    pending = list(used)
    while pending:
        for name in feeds.pop(pending.pop(), ()):
            if name not in used:
                used.add(name)
                pending.append(name)
    return {
        id(i): tuple(name in used for name in _targets(i))
        for i in function.instructions
        if i.opcode[0] in ("ld", "ldu")
    }


def _note_uses(instruction: Instruction, feeds: dict[str, set[str]], used: set[str]) -> None:
    """`feeds` maps the target of a move to what it was made of."""
    name = instruction.opcode[0]
    if name == "st":
        used.update(_names(instruction.operands[0]))
    elif name == "call":
        for operand in instruction.operands:
            if not isinstance(operand, Arguments):
                used.update(_names(operand))
    elif name in MOVES:
        sources = {found for operand in instruction.operands[1:] for found in _value_names(operand)}
        if name == "selp":
            used.update(_names(instruction.operands[3]))
        for target in _targets(instruction):
            feeds.setdefault(target, set()).update(sources)
        for operand in instruction.operands[1:]:
            if isinstance(operand, Address):
                used.update(_names(operand))
    else:
        for operand in instruction.operands:
            used.update(_names(operand))


def _targets(instruction: Instruction) -> list[str]:
    first = instruction.operands[0]
    items = first.items if isinstance(first, Vector) else (first,)
    return [item.name if isinstance(item, Register) else "" for item in items]


def _value_names(operand: Operand) -> Iterator[str]:
    if not isinstance(operand, Address):
        yield from _names(operand)


def _names(operand: Operand) -> Iterator[str]:
    if isinstance(operand, Register):
        yield operand.name
    elif isinstance(operand, Negated):
        yield operand.register.name
    elif isinstance(operand, Address):
        if isinstance(operand.base, Register):
            yield operand.base.name
    elif isinstance(operand, Vector | Arguments):
        for item in operand.items:
            yield from _names(item)
    elif isinstance(operand, Pair):
        yield from _names(operand.first)
        yield from _names(operand.second)
