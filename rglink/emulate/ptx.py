"""PTX as plain data: what `parser.parse_ptx` makes of the text and the machine runs.

Source: PTX ISA 9.x, chapters "Syntax", "State Spaces, Types, and Variables", "Instruction Operands".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

# (file, line) of a source file; lines count from 1.
Source: TypeAlias = tuple[str, int]

# Of a deep chain of inlined calls so many are told.
MOST_INLINED = 4

# Bytes of one element of each type; predicates have no place in memory.
TYPE_SIZES: Mapping[str, int] = {
    "b8": 1,
    "u8": 1,
    "s8": 1,
    "e4m3": 1,
    "e5m2": 1,
    "b16": 2,
    "u16": 2,
    "s16": 2,
    "f16": 2,
    "bf16": 2,
    "e4m3x2": 2,
    "e5m2x2": 2,
    "b32": 4,
    "u32": 4,
    "s32": 4,
    "f32": 4,
    "tf32": 4,
    "f16x2": 4,
    "bf16x2": 4,
    "u16x2": 4,
    "s16x2": 4,
    "b64": 8,
    "u64": 8,
    "s64": 8,
    "f64": 8,
    "f32x2": 8,
    "b128": 16,
}


@dataclass(frozen=True, slots=True)
class Register:
    """A register of the function, by its name there (registers of inner blocks are renamed), and its PTX type."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable or function, plus `offset` bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Label:
    """A place in the function: a key of `Function.labels`."""

    name: str


@dataclass(frozen=True, slots=True)
class Special:
    """A special register such as `%tid.x`, `%laneid`, `WARP_SZ`."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """An integer constant, as written."""

    value: int


@dataclass(frozen=True, slots=True)
class FloatImmediate:
    """A floating constant by its bits: `width` 32 for `0f`, 64 for `0d` and decimal ones."""

    bits: int
    width: int


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`: nothing is written."""


@dataclass(frozen=True, slots=True)
class Negated:
    """`!p`."""

    register: Register


@dataclass(frozen=True, slots=True)
class Pair:
    """`p|q`: two destinations."""

    first: Register | Sink
    second: Register | Sink


@dataclass(frozen=True, slots=True)
class Address:
    """`[base+offset]`; no base means an absolute address."""

    base: Register | Symbol | None
    offset: int


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b}`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Arguments:
    """`(a, b)` of a call."""

    items: tuple[Operand, ...]


Operand: TypeAlias = (
    Register
    | Symbol
    | Label
    | Special
    | Immediate
    | FloatImmediate
    | Sink
    | Negated
    | Pair
    | Address
    | Vector
    | Arguments
)


@dataclass(frozen=True, slots=True)
class Instruction:
    """`opcode` is ("ld", "global", "f32"); `guard` (predicate, negated); `line` that of the PTX.

    `loc` is the line of the user's own source: the innermost that is not of Rust's library. Where PTX names a line of
    the library alone, that is `within`, and `loc` the last own one before it in the function. `inlined_at` are the
    user's lines into which `loc` was inlined, from the inside out.
    """

    opcode: tuple[str, ...]
    guard: tuple[Register, bool] | None
    operands: tuple[Operand, ...]
    line: int
    loc: Source | None
    within: Source | None = None
    inlined_at: tuple[Source, ...] = ()

    @property
    def place(self) -> str:
        """`src/lib.rs:7`, `near src/lib.rs:7`, or "" where PTX has no line table."""
        return "" if self.loc is None else f"{'near ' if self.within else ''}{self.loc[0]}:{self.loc[1]}"

    @property
    def text(self) -> str:
        """The opcode as PTX spells it."""
        return ".".join(self.opcode)


@dataclass(frozen=True, slots=True)
class Relocation:
    """An address in an initialiser: `width` bytes at `offset` hold (`symbol` + `addend`) >> `shift`."""

    offset: int
    width: int
    symbol: str
    addend: int
    shift: int = 0


@dataclass(frozen=True)
class Variable:
    """`space` is global, const, shared, local or param; `size` in bytes; `initial` shorter than `size` means zeros.

    `external` says that only a declaration is here; of `.extern .shared x[]` the size is 0.
    """

    name: str
    space: str
    type: str
    align: int
    size: int
    initial: bytes = b""
    relocations: tuple[Relocation, ...] = ()
    external: bool = False


@dataclass(frozen=True)
class Parameter:
    """A formal parameter or result; `in_register` for the old `.reg` form, `size` and `align` in bytes."""

    name: str
    type: str
    align: int
    size: int
    in_register: bool = False


@dataclass(frozen=True)
class Prototype:
    """What an indirect call passes and gets back: `.callprototype`."""

    results: tuple[Parameter, ...]
    parameters: tuple[Parameter, ...]
    noreturn: bool


def inlined_places(sources: Iterable[Source]) -> tuple[str, ...]:
    """Lines into which another was inlined, for messages; of a deep chain the innermost."""
    return tuple(f"{file}:{line}: inlined here" for file, line in islice(sources, MOST_INLINED))


@dataclass(frozen=True)
class Function:
    """`labels` maps a label to the index of the instruction after it; `tables` the label lists of `brx.idx` and calls.

    `registers` maps names to PTX types; `variables` are those declared in the body; `directives` the numbers of
    `.maxntid`, `.reqntid` and others. `defined` is False for a declaration.
    """

    name: str
    is_kernel: bool
    parameters: tuple[Parameter, ...]
    results: tuple[Parameter, ...]
    noreturn: bool
    line: int
    defined: bool = False
    registers: Mapping[str, str] = field(default_factory=dict)
    instructions: tuple[Instruction, ...] = ()
    labels: Mapping[str, int] = field(default_factory=dict)
    variables: tuple[Variable, ...] = ()
    prototypes: Mapping[str, Prototype] = field(default_factory=dict)
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    directives: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """`version` (9, 0), `target` "sm_90a"; variables and functions by name, in the order of the text."""

    name: str
    version: tuple[int, int]
    target: str
    variables: Mapping[str, Variable]
    functions: Mapping[str, Function]
    aliases: Mapping[str, str]
