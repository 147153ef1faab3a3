"""The types of operands and results of the arithmetic instructions that `slots` must know.

Source: PTX ISA, the operand types under each instruction of "Integer Arithmetic Instructions",
"Floating-Point Instructions", "Logic and Shift Instructions" and "Data Movement and Conversion Instructions: cvt".
"""

from __future__ import annotations

from rglink.emulate.errors import Unsupported
from rglink.emulate.ptx import TYPE_SIZES

WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
# Results whose type is not that of the operands.
COUNTS = frozenset(("popc", "clz", "bfind", "fns"))
# Arithmetic instructions by name, with their number of operands (cvt has one to three).
OPERANDS = {
    **dict.fromkeys("abs neg not cnot popc clz bfind brev rcp sqrt rsqrt sin cos lg2 ex2 tanh testp cvt".split(), 1),
    **dict.fromkeys("add sub mul mul24 div rem min max and or xor shl shr copysign bmsk szext".split(), 2),
    **dict.fromkeys("addc subc".split(), 2),
    **dict.fromkeys("mad mad24 madc fma sad bfe shf prmt dp4a dp2a fns".split(), 3),
    **dict.fromkeys("bfi lop3".split(), 4),
}


def types_of(opcode: tuple[str, ...], operands: int) -> tuple[str, list[str]]:
    """The result's type and those of `operands` operands.

    Raises:
        Unsupported: an opcode without a type.
    """
    name, last = opcode[0], opcode[-1]
    if name == "prmt":
        return "b32", ["b32"] * operands
    if last not in TYPE_SIZES and last != "pred":
        raise Unsupported(f"instruction {'.'.join(opcode)}")
    result, types = last, [last] * operands
    if name == "cvt":
        return _conversion(opcode, operands)
    if name in ("mul", "mad") and "wide" in opcode:
        result = WIDER.get(last, last)
        types[2:] = [result] * (operands - 2)
    elif name in ("shl", "shr", "szext"):
        types[1] = "u32"
    elif name in COUNTS:
        result = "u32"
        types[1:] = ["u32"] * (operands - 1)
    elif name == "shf":
        types[2] = "u32"
    elif name in ("bfe", "bfi"):
        types[-2:] = ["u32", "u32"]
    elif name == "bmsk":
        types = ["u32"] * operands
    elif name == "lop3":
        types[3] = "u32"
    elif name == "testp":
        result = "pred"
    elif name in ("dp4a", "dp2a"):
        result = "s32" if "s32" in opcode else "u32"
        types = [result] * operands
    elif name == "sad":
        types[2] = last
    elif name in ("add", "sub", "fma") and "f32" in opcode[1:-1]:  # mixed precision: the last operand is wide
        result = types[-1] = "f32"
    return result, types


def _conversion(opcode: tuple[str, ...], operands: int) -> tuple[str, list[str]]:
    kinds = [part for part in opcode[1:] if part in TYPE_SIZES]
    if len(kinds) == 1 and opcode[1] == "pack":
        kinds = kinds * 2
    if len(kinds) < 2:
        raise Unsupported(f"instruction {'.'.join(opcode)}")
    result, source = kinds[0], kinds[1]
    types = [source] * operands
    if "rs" in opcode or (len(kinds) == 3):
        types[-1] = "b32"
    return result, types
