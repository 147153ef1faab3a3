"""Overflow checks of narrow multiplications for libNVVM, by way of a product that cannot overflow.

libNVVM 13.5 at `-opt=0` refuses `llvm.[us]mul.with.overflow` of 8, 16 and 32 bits on every architecture, with nothing
but "unsupported operation"; 64 bits it takes, and the LLVM route takes all.
"""

from __future__ import annotations

import re

from rglink.irinst import Instruction, instructions, read_call
from rglink.irtext import Item, ModuleText, expect_equal, skip_type

_NAME = re.compile(r"llvm\.([us])mul\.with\.overflow\.i(\d+)")
_WIDEST = 32


def widen_overflow(module: ModuleText) -> int:
    """Replace each such intrinsic of at most 32 bits by a product of twice its width; returns how many there were."""
    return sum(
        _edit(item) for item in module.of_kind("define") if any("mul.with.overflow." in line for line in item.body)
    )


def _edit(item: Item) -> int:
    replaced: dict[int, list[str]] = {}
    for instruction in instructions(item.body):
        if instruction.opcode == "call" and "mul.with.overflow." in instruction.rest:
            lines = _wide(instruction, len(replaced))
            if lines:
                debug = re.search(r", !dbg !\d+", item.body[instruction.index])
                replaced[instruction.index] = [f"  {line}{debug[0] if debug else ''}" for line in lines]
    item.body = [line for index, old in enumerate(item.body) for line in replaced.get(index, [old])]
    left = [match for line in item.body for match in _NAME.finditer(line) if int(match[2]) <= _WIDEST]
    expect_equal(f"overflow checks in {item.name}", len(replaced), len(replaced) + len(left))
    return len(replaced)


def _wide(instruction: Instruction, number: int) -> list[str]:
    """The instructions instead of the call; none where it is another or a wide one."""
    call = read_call(instruction)
    match = _NAME.fullmatch(call.callee)
    if match is None or int(match[2]) > _WIDEST:
        return []
    kind = f"i{match[2]}"
    wide = "i64" if int(match[2]) > _WIDEST // 2 else "i32"
    extend = "sext" if match[1] == "s" else "zext"
    left, right = (argument[skip_type(argument, 0) :].split()[-1] for argument in call.arguments)
    name = f"%rglink.overflow.{number}"
    return [
        f"{name}.left = {extend} {kind} {left} to {wide}",
        f"{name}.right = {extend} {kind} {right} to {wide}",
        f"{name}.product = mul {wide} {name}.left, {name}.right",
        f"{name}.low = trunc {wide} {name}.product to {kind}",
        f"{name}.back = {extend} {kind} {name}.low to {wide}",
        f"{name}.lost = icmp ne {wide} {name}.product, {name}.back",
        f"{name}.half = insertvalue {{ {kind}, i1 }} poison, {kind} {name}.low, 0",
        f"{instruction.result} = insertvalue {{ {kind}, i1 }} {name}.half, i1 {name}.lost, 1",
    ]
