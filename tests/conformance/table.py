"""The table of operations: each line is a name, the types it is for, its arguments, its result and the Rust.

In arguments, result and Rust, `T` stands for the type itself, `U` and `S` for the unsigned and signed integer of its
width, `BITS` for its width. Arguments are called a, b, c in order; an argument `N` is a u32 that counts bits.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from tests.conformance.float_table import FLOAT_TABLE, FREE_ZERO, SAME_NAN
from tests.conformance.integer_table import INTEGER_TABLE
from tests.conformance.types import FLOATS, INTEGERS, SCALARS

SAMPLE_SEED = 20_261
TYPES_OF_EACH = 2

# How results may differ: not at all; any NaN equals any; also a zero of either sign.
EXACT, ANY_NAN, ANY_ZERO = "exact", "any-nan", "any-zero"


@dataclass(frozen=True)
class Operation:
    """One operation for one type: `arguments` are types or `n<bits>` for a count of bits."""

    name: str
    arguments: tuple[str, ...]
    result: str
    rust: str
    rule: str

    @property
    def family(self) -> str:
        """The operation without its type."""
        return self.name.rpartition("_")[0]


def all_operations() -> tuple[Operation, ...]:
    """Every operation for every type, sorted by name."""
    found = [*_expand(INTEGER_TABLE, INTEGERS), *_expand(FLOAT_TABLE, FLOATS), *_casts(), *_char_operations()]
    return tuple(sorted(found, key=lambda operation: operation.name))


def sample() -> list[Operation]:
    """Two types of every operation, the same in every run."""
    families: dict[str, list[Operation]] = {}
    for operation in all_operations():
        families.setdefault(operation.family, []).append(operation)
    rng = random.Random(SAMPLE_SEED)
    return [each for found in families.values() for each in rng.sample(found, min(TYPES_OF_EACH, len(found)))]


def _expand(table: str, types: tuple[str, ...]) -> list[Operation]:
    found: list[Operation] = []
    for line in filter(None, table.splitlines()):
        name, kinds, arguments, result, rust = (part.strip() for part in line.split("|", 4))
        found += [
            _for_type(name, arguments, result, rust, type_name)
            for type_name in types
            if type_name in kinds.split() or (len(kinds) <= 2 and SCALARS[type_name].kind in kinds)
        ]
    return found


def _for_type(name: str, arguments: str, result: str, rust: str, type_name: str) -> Operation:
    bits = SCALARS[type_name].bits
    names = {
        "T": type_name,
        "U": f"u{bits}",
        "S": f"i{bits}",
        "BITS": str(bits),
        "N": f"n{bits}",
        "math": "f16" if bits == 16 else f"core::{type_name}::math",
    }

    def filled(text: str) -> str:
        return re.sub(r"\b(T|U|S|BITS|N|math)\b", lambda found: names[found[1]], text)

    rule = EXACT
    if type_name in FLOATS and result == "T" and name not in SAME_NAN:
        rule = ANY_ZERO if name in FREE_ZERO else ANY_NAN
    return Operation(f"{name}_{type_name}", tuple(filled(arguments).split()), filled(result), filled(rust), rule)


def _casts() -> list[Operation]:
    """`as` between all types that it takes, and `try_from` between integers."""
    names = (*INTEGERS, *FLOATS)
    found = []
    for source in (*names, "usize", "isize", "bool", "char"):
        for target in (*names, "usize", "isize"):
            if source == target or (source in ("bool", "char") and target in FLOATS):
                continue
            rule = ANY_NAN if target in FLOATS else EXACT
            found.append(Operation(f"cast_{source}_{target}", (source,), target, f"a as {target}", rule))
            if source in INTEGERS and target in INTEGERS:
                rust = f"some!({target}, {target}::try_from(a).ok())"
                found.append(Operation(f"try_from_{source}_{target}", (source,), f"[{target}; 2]", rust, EXACT))
    return found


CHAR_TABLE = """
upper      | char | [u32; 2] | { let mut it = a.to_uppercase(); [it.next().map_or(0, u32::from), it.next().map_or(0, u32::from)] }
lower      | char | [u32; 2] | { let mut it = a.to_lowercase(); [it.next().map_or(0, u32::from), it.next().map_or(0, u32::from)] }
alphabetic | char | bool     | a.is_alphabetic()
numeric    | char | bool     | a.is_numeric()
white      | char | bool     | a.is_whitespace()
digit      | char | [u32; 2] | some!(u32, a.to_digit(36))
utf8_size  | char | u8       | a.len_utf8() as u8
utf8       | char | u32      | { let mut b = [0; 4]; a.encode_utf8(&mut b); u32::from_le_bytes(b) }
utf16_size | char | u8       | a.len_utf16() as u8
from_u32   | u32  | [u32; 2] | some!(u32, char::from_u32(a & 0x1f_ffff).map(u32::from))
ascii_up   | u8   | u8       | a.to_ascii_uppercase()
ascii_kind | u8   | u8       | u8::from(a.is_ascii_alphanumeric()) | u8::from(a.is_ascii_punctuation()) << 1 | u8::from(a.is_ascii_whitespace()) << 2 | u8::from(a.is_ascii_hexdigit()) << 3
logic      | bool bool | u8  | u8::from(a & b) | u8::from(a | b) << 1 | u8::from(a ^ b) << 2 | u8::from(!a) << 3 | u8::from(a < b) << 4
"""  # noqa: E501


def _char_operations() -> list[Operation]:
    lines = (line.split("|", 3) for line in CHAR_TABLE.splitlines() if line)
    return [
        Operation(f"{name.strip()}_char", tuple(arguments.split()), result.strip(), rust.strip(), EXACT)
        for name, arguments, result, rust in lines
    ]
