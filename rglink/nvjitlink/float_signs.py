"""Sign operations on floats whose bits can be seen, as integer operations; for both routes.

In LLVM and Rust `fneg` and `llvm.fabs` change the sign bit and nothing else, NaN or not (LangRef, "Floating-Point
Environment"), and so does `llvm.copysign`, of which LLVM may make both. PTX's `neg` and `abs` return an
unspecified NaN for a NaN (PTX ISA 9.7.3), and ptxas makes an addition of zero of them, which loses the payload and the
sign. Where nothing but arithmetic and comparisons sees the result, its NaN has no bits to keep, and the float form
stays: it costs no instruction there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rglink.irinst import Instruction, instructions, read_call
from rglink.irtext import Item, ModuleText, skip_type

# What is equal for every NaN that comes in: its result is the same, or any NaN.
_BLIND = frozenset("fadd fsub fmul fdiv frem fcmp fptosi fptoui fptrunc fpext".split())
_BLIND_CALLS = re.compile(
    r"llvm\.(?:sqrt|fma|fmuladd|floor|ceil|trunc|rint|nearbyint|round|roundeven|canonicalize"
    r"|(?:min|max)(?:num|imum|imumnum)|fpto[su]i\.sat|nvvm\.(?:add|mul|fma|sqrt|rcp|div|f[a-z]+)\.r?\w*)(?:\.|$)"
)
# What hands the bits on: they are seen if its own result is.
_PASSES = frozenset({"select", "phi", "freeze", "fneg"})
# Bits, and the letter of such a register in a constraint of inline assembly.
_REGISTERS = {"half": (16, "h"), "bfloat": (16, "h"), "float": (32, "r"), "double": (64, "l")}
_FLAGS = re.compile(r"(?:(?:nnan|ninf|nsz|arcp|contract|afn|reassoc|fast) )*")
_VECTOR = re.compile(r"<(\d+) x (\w+)>")
_INTRINSIC = re.compile(r"@llvm\.(fabs|copysign)\.")
WORDS = (" fneg ", "@llvm.fabs.", "@llvm.copysign.")


@dataclass(frozen=True)
class _Sign:
    """`name`: "fneg", "fabs" or "copysign"; `kind` is the operands' type."""

    name: str
    kind: str
    operands: tuple[str, ...]


def make_float_signs_exact(module: ModuleText) -> int:
    """Rewrite each negation and absolute value whose bits can be seen; returns how many there were."""
    return sum(_edit(item) for item in module.of_kind("define") if any(_has_sign(line) for line in item.body))


def _has_sign(line: str) -> bool:
    return any(word in line for word in WORDS)


def _edit(item: Item) -> int:
    code = list(instructions(item.body))
    users = _users(code)
    replaced: dict[int, list[str]] = {}
    for instruction in code:
        if not _has_sign(item.body[instruction.index]):
            continue
        sign = _read_sign(instruction)
        if sign and _is_seen(instruction.result, users):
            lines = _integer_form(sign, instruction.result, f"%rglink.sign.{len(replaced)}")
            if lines:
                debug = re.search(r", !dbg !\d+", item.body[instruction.index])
                replaced[instruction.index] = [f"  {line}{debug[0] if debug else ''}" for line in lines]
    item.body = [line for index, old in enumerate(item.body) for line in replaced.get(index, [old])]
    return len(replaced)


def _users(code: Iterable[Instruction]) -> dict[str, list[Instruction]]:
    found: dict[str, list[Instruction]] = {}
    for instruction in code:
        for name in set(instruction.locals()):
            found.setdefault(name, []).append(instruction)
    return found


def _read_sign(instruction: Instruction) -> _Sign | None:
    if instruction.opcode == "fneg":
        match = _FLAGS.match(instruction.rest)
        texts: tuple[str, ...] = (instruction.rest[match.end() if match else 0 :].split(",")[0],)
        name = "fneg"
    elif instruction.opcode == "call" and (found := _INTRINSIC.search(instruction.rest)):
        call = read_call(instruction)
        if not call.callee.startswith("llvm."):
            return None
        name, texts = found[1], call.arguments
    else:
        return None
    end = skip_type(texts[0], 0)
    return _Sign(name, texts[0][:end], tuple(text[end:].split()[-1] for text in texts))


def _is_seen(result: str, users: Mapping[str, list[Instruction]]) -> bool:
    """Whether anything can tell one NaN in `result` from another."""
    waiting, visited = [result], {result}
    while waiting:
        for user in users.get(waiting.pop(), []):
            if user.opcode in _BLIND:
                continue
            passes = user.opcode in _PASSES
            if user.opcode == "call":
                callee = read_call(user).callee
                if _BLIND_CALLS.match(callee):
                    continue
                passes = callee.startswith(("llvm.fabs.", "llvm.copysign."))
            if not passes:
                return True
            if user.result not in visited:
                visited.add(user.result)
                waiting.append(user.result)
    return False


def _integer_form(sign: _Sign, result: str, name: str) -> list[str]:
    """The instructions instead of it; none for a type that is not known here."""
    vector = _VECTOR.fullmatch(sign.kind)
    element = vector[2] if vector else sign.kind
    if element not in _REGISTERS:
        return []
    if vector is None:
        return _scalar_form(sign, result, name)
    lines: list[str] = []
    whole, last = "poison", int(vector[1]) - 1
    for lane in range(last + 1):
        part = f"{name}.{lane}"
        olds = tuple(f"{part}.old{number}" for number in range(len(sign.operands)))
        for old, operand in zip(olds, sign.operands, strict=True):
            lines.append(f"{old} = extractelement {sign.kind} {operand}, i64 {lane}")
        lines += _scalar_form(_Sign(sign.name, element, olds), f"{part}.new", part)
        target = result if lane == last else f"{part}.whole"
        lines.append(f"{target} = insertelement {sign.kind} {whole}, {element} {part}.new, i64 {lane}")
        whole = target
    return lines


def _scalar_form(sign: _Sign, result: str, name: str) -> list[str]:
    width, letter = _REGISTERS[sign.kind]
    top = 1 << width - 1
    # Assembly, because LLVM's combiner turns an `xor` or `and` of the sign bit back into the float operation.
    code = {
        "fneg": f"xor.b{width} $0, $1, {top:#x};",
        "fabs": f"and.b{width} $0, $1, {top - 1:#x};",
        "copysign": f"{{ .reg .b{width} s; and.b{width} s, $2, {top:#x}; and.b{width} $0, $1, {top - 1:#x};"
        f" or.b{width} $0, $0, s; }}",
    }[sign.name]
    bits = [f"{name}.bits{number}" for number in range(len(sign.operands))]
    inputs = f",{letter}" * len(bits)
    arguments = ", ".join(f"i{width} {each}" for each in bits)
    return [
        *(f"{b} = bitcast {sign.kind} {x} to i{width}" for b, x in zip(bits, sign.operands, strict=True)),
        f'{name}.changed = call i{width} asm "{code}", "={letter}{inputs}"({arguments})',
        f"{result} = bitcast i{width} {name}.changed to {sign.kind}",
    ]
