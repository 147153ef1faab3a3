"""Instructions and basic blocks of a printed function body (LLVM LangRef, "Instruction Reference")."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rglink.irtext import code_of, next_comma, skip_balanced, skip_type, split_commas, unquote

_LOCAL = r'%(?:"[^"]*"|[-a-zA-Z$._0-9]+)'
_RESULT = re.compile(rf"\s+(?:({_LOCAL}) = )?((?:tail |musttail |notail )?)([a-z][a-z_0-9]*)\b ?(.*)$", re.DOTALL)
_LABEL = re.compile(r'^("[^"]*"|[-a-zA-Z$._0-9]+):')
_TARGET = re.compile(rf"\blabel ({_LOCAL})")
_STRING_OR_LOCAL = re.compile(rf'[c!]?"[^"]*"|(?<![@\w])({_LOCAL})')
_TERMINATORS = frozenset({"ret", "br", "switch", "indirectbr", "unreachable", "invoke", "callbr", "resume"})


@dataclass(frozen=True)
class Instruction:
    """`index` counts lines of the body; `rest` is the code after the opcode (all lines of a `switch`, joined)."""

    index: int
    result: str  # with `%`, "" when there is none
    opcode: str
    rest: str

    @property
    def is_terminator(self) -> bool:
        return self.opcode in _TERMINATORS

    def locals(self) -> list[str]:
        """Names with `%` that the operands mention: values, and block labels of terminators and phis."""
        return [match[1] for match in _STRING_OR_LOCAL.finditer(self.rest) if match[1]]

    def targets(self) -> list[str]:
        """Labels (with `%`) that a terminator may go to, in order."""
        return _TARGET.findall(self.rest) if self.is_terminator else []


@dataclass(frozen=True)
class Block:
    """`label` with `%`; the entry's is the number LLVM gives it when it is not printed."""

    label: str
    instructions: tuple[Instruction, ...]

    @property
    def terminator(self) -> Instruction:
        return self.instructions[-1]


def read_blocks(body: Sequence[str], parameters: Sequence[str]) -> list[Block]:
    """The blocks of a definition, entry first. `parameters` are the parameter names with `%`."""
    numbered = sum(1 for name in parameters if name[1:].isdigit())
    label = f"%{numbered}"
    blocks: list[Block] = []
    current: list[Instruction] = []
    index = 0
    while index < len(body):
        line = body[index]
        match = _LABEL.match(line)
        if match:
            if current:
                blocks.append(Block(label, tuple(current)))
            label, current = f"%{match[1]}", []
        instruction, index = _read(body, index)
        if instruction is not None:
            current.append(instruction)
    if current:
        blocks.append(Block(label, tuple(current)))
    return blocks


def _read(body: Sequence[str], index: int) -> tuple[Instruction | None, int]:
    line = body[index]
    if not line.startswith("  ") or line.lstrip().startswith(("#", ";")):
        return None, index + 1
    match = _RESULT.match(code_of(line))
    if match is None:
        return None, index + 1
    rest, last = match[4], index
    if match[3] == "switch" and not rest.rstrip().endswith("]"):
        while body[last].strip() != "]" and not body[last].lstrip().startswith("],"):
            last += 1
            rest += " " + code_of(body[last]).strip()
    elif match[3] in ("invoke", "callbr", "landingpad"):
        while last + 1 < len(body) and body[last + 1].startswith("          "):
            last += 1
            rest += " " + code_of(body[last]).strip()
    return Instruction(index, match[1] or "", match[3], rest), last + 1


def instructions(body: Sequence[str]) -> Iterator[Instruction]:
    """All instructions of a body in order, block structure ignored."""
    index = 0
    while index < len(body):
        instruction, index = _read(body, index)
        if instruction is not None:
            yield instruction


@dataclass(frozen=True)
class Call:
    """A `call`. `callee` is a global's unquoted name, a local with `%`, or "" for inline assembly."""

    callee: str
    is_asm: bool
    asm_text: str
    asm_flags: tuple[str, ...]
    asm_constraints: str
    return_type: str
    arguments: tuple[str, ...]  # as printed: "i32 noundef %x"
    suffix: str  # after the argument list: "#3, !srcloc !7"


_ASM = re.compile(r'asm ((?:(?:sideeffect|alignstack|inteldialect|unwind) )*)"([^"]*)", "([^"]*)"\(')
_CALLEE = re.compile(r'(@(?:"[^"]*"|[-a-zA-Z$._0-9]+)|%(?:"[^"]*"|[-a-zA-Z$._0-9]+))\(')


def read_call(instruction: Instruction) -> Call:
    """Take a `call` apart.

    Raises:
        ValueError: it is not a call of a form that LLVM prints.
    """
    rest = instruction.rest
    asm = _ASM.search(rest)
    if asm:
        end = skip_balanced(rest, asm.end() - 1)
        arguments = tuple(split_commas(rest[asm.end() : end - 1]))
        flags = tuple(asm[1].split())
        return Call("", True, asm[2], flags, asm[3], _last_type(rest[: asm.start()]), arguments, rest[end:].strip())
    for match in _CALLEE.finditer(rest):
        if rest[: match.start()].count('"') % 2 == 0 and _depth(rest[: match.start()]) == 0:
            end = skip_balanced(rest, match.end() - 1)
            arguments = tuple(split_commas(rest[match.end() : end - 1]))
            callee = unquote(match[1]) if match[1].startswith("@") else match[1]
            return Call(callee, False, "", (), "", _last_type(rest[: match.start()]), arguments, rest[end:].strip())
    raise ValueError(f"not a call: {instruction.opcode} {rest!r}")


def _depth(text: str) -> int:
    return sum(text.count(char) for char in "([{<") - sum(text.count(char) for char in ")]}>")


def _last_type(before: str) -> str:
    """The return type, or the whole function type of a vararg call, that ends `before`."""
    words = before.strip()
    for start in [0, *(match.end() for match in re.finditer(" ", words))]:
        try:
            end = skip_type(words, start)
        except (ValueError, IndexError):
            continue
        if end == len(words) or words[end:].lstrip().startswith("("):
            return words[start:]
    return words


@dataclass(frozen=True)
class Access:
    """A memory access: `pointer_type` is "ptr" or "ptr addrspace(N)", `pointer` the operand as printed."""

    opcode: str
    value_type: str
    pointer_type: str
    pointer: str  # a name or constant, without the ordering that follows it in atomics
    pointer_position: int  # where "ptr..." begins in `rest`


def read_access(instruction: Instruction) -> Access | None:
    """A load, store, atomicrmw or cmpxchg taken apart; None for anything else."""
    if instruction.opcode not in ("load", "store", "atomicrmw", "cmpxchg"):
        return None
    rest = instruction.rest
    position = 0
    words = re.compile(r"(?:atomic|volatile|weak) ")
    while match := words.match(rest, position):
        position = match.end()
    if instruction.opcode == "atomicrmw":
        position = rest.index(" ", position) + 1
    value_type = ""
    if instruction.opcode in ("load", "store"):
        end = skip_type(rest, position)
        value_type = rest[position:end]
        position = _next_operand(rest, end)
    end = skip_type(rest, position)
    pointer_type = rest[position:end]
    pointer_end = value_end(rest, end + 1)
    if instruction.opcode in ("atomicrmw", "cmpxchg"):
        after = _next_operand(rest, pointer_end)
        value_type = rest[after : skip_type(rest, after)]
    return Access(instruction.opcode, value_type, pointer_type, rest[end + 1 : pointer_end], position)


_SIMPLE_VALUE = re.compile(r'[@%](?:"[^"]*"|[-a-zA-Z$._0-9]+)|(?:null|undef|poison|zeroinitializer|none)\b')
# `getelementptr inbounds inrange(-8, 8) (`: what stands before the brackets of a constant expression.
_EXPRESSION = re.compile(r"(?:[a-z_]+(?:\([-0-9, ]+\))? )+\(")


def value_end(rest: str, start: int) -> int:
    """End of the pointer value (name, constant or constant expression) that begins at `start`.

    Raises:
        ValueError: no pointer value begins there.
    """
    if match := _SIMPLE_VALUE.match(rest, start):
        return match.end()
    if match := _EXPRESSION.match(rest, start):
        return skip_balanced(rest, match.end() - 1)
    raise ValueError(f"no pointer value at {start} in {rest!r}")


def _next_operand(rest: str, start: int) -> int:
    return next_comma(rest, start) + 2


def phi_incoming(instruction: Instruction) -> tuple[str, list[tuple[str, str]]]:
    """Type and (value, label with `%`) pairs of a `phi`."""
    rest = instruction.rest
    flags = re.match(r"(?:(?:nnan|ninf|nsz|arcp|contract|afn|reassoc|fast) )*", rest)
    start = flags.end() if flags else 0
    end = skip_type(rest, start)
    pairs: list[tuple[str, str]] = []
    for part in split_commas(rest[end:]):
        if part.startswith("["):
            value, label = split_commas(part[1:-1].strip())
            pairs.append((value, label))
    return rest[start:end], pairs
