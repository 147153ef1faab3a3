"""PTX text to tokens.

Source: PTX ISA, "Syntax": identifiers, integer constants (octal, binary, `U`), floating constants (`0f`, `0d`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rglink.emulate.errors import PtxError

TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\n\f]+|//[^\n]*|/\*.*?\*/)
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<float>0[fF][0-9a-fA-F]{8}(?![\w$])|0[dD][0-9a-fA-F]{16}(?![\w$])|\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
    |(?P<int>(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?)
    |(?P<name>[a-zA-Z_$%][\w$]*(?:(?:\.|::)\w+)*)
    |(?P<directive>\.[a-zA-Z_]\w*(?:::\w+)*)
    |(?P<mark><<|>>|&&|\|\||[<>=!]=|[{}()\[\],;:|!@<>=+\-*/%&^~?])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is a group name of `TOKEN`, or "end"."""

    kind: str
    text: str
    line: int


def tokens_of(name: str, text: str) -> list[Token]:
    """All tokens with their lines (from 1) and a last one of kind "end".

    Raises:
        PtxError: a character that no token begins with.
    """
    found: list[Token] = []
    line, at, end = 1, 0, len(text)
    match = TOKEN.match
    while at < end:
        hit = match(text, at)
        if hit is None:
            raise PtxError(f"{name}: line {line}: {text[at]!r} is no PTX")
        kind, word = str(hit.lastgroup), hit.group()
        if kind != "blank":
            found.append(Token(kind, word, line))
        if "\n" in word:
            line += word.count("\n")
        at = hit.end()
    found.append(Token("end", "", line))
    return found


def integer_of(text: str) -> int:
    """The value of an integer token."""
    digits = text.rstrip("U")
    if digits[:2] in ("0x", "0X"):
        return int(digits, 16)
    if digits[:2] in ("0b", "0B"):
        return int(digits[2:], 2)
    return int(digits, 8) if len(digits) > 1 and digits[0] == "0" else int(digits)
