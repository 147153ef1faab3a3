"""Constant expressions and initialisers of PTX.

Source: PTX ISA, "Constant Expressions", "Initializers".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rglink.emulate.errors import PtxError
from rglink.emulate.lexer import Token, integer_of
from rglink.emulate.ptx import FloatImmediate, Immediate, Relocation

# Binding strength of the binary operators, weakest first.
PRECEDENCE = {
    text: strength
    for strength, texts in enumerate(
        [
            ("||",),
            ("&&",),
            ("|",),
            ("^",),
            ("&",),
            ("==", "!="),
            ("<", ">", "<=", ">="),
            ("<<", ">>"),
            ("+", "-"),
            "*/%",
        ]
    )
    for text in texts
}
BINARY: Mapping[str, Callable[[int, int], int]] = {
    "||": lambda a, b: int(bool(a) or bool(b)),
    "&&": lambda a, b: int(bool(a) and bool(b)),
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b),
    "<=": lambda a, b: int(a <= b),
    ">=": lambda a, b: int(a >= b),
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1),
    "%": lambda a, b: (abs(a) % abs(b)) * (-1 if a < 0 else 1),
}


class TokenStream:
    """The tokens of one text and the place reached."""

    def __init__(self, name: str, tokens: list[Token]) -> None:
        self.name, self.tokens, self.at = name, tokens, 0

    @property
    def text(self) -> str:
        return self.tokens[self.at].text

    @property
    def kind(self) -> str:
        return self.tokens[self.at].kind

    @property
    def line(self) -> int:
        return self.tokens[self.at].line

    def take(self) -> str:
        """The next token's text, consumed.

        Raises:
            PtxError: the text ends.
        """
        token = self.tokens[self.at]
        if token.kind == "end":
            raise self.error("the text ends in the middle of a statement")
        self.at += 1
        return token.text

    def accept(self, text: str) -> bool:
        """Consume the next token if it is `text`."""
        if self.tokens[self.at].text != text:
            return False
        self.at += 1
        return True

    def expect(self, text: str) -> None:
        """Consume `text`.

        Raises:
            PtxError: something else stands there.
        """
        if not self.accept(text):
            raise self.error(f"found {self.text or 'the end of the text'!r}, wanted {text!r}")

    def integer(self) -> int:
        """A constant integer expression."""
        value = constant_of(self)
        if not isinstance(value, Immediate):
            raise self.error("wanted an integer constant")
        return value.value

    def integer_between(self) -> int:
        """One integer token, as in `%r<12>`, where `>` ends it."""
        if self.kind != "int":
            raise self.error("wanted an integer")
        return integer_of(self.take())

    def error(self, message: str) -> PtxError:
        """An error at the place reached."""
        return PtxError(f"{self.name}: line {self.line}: {message}")


def float_of(text: str) -> FloatImmediate:
    """The bits of a floating token."""
    if text[:2] in ("0f", "0F"):
        return FloatImmediate(int(text[2:], 16), 32)
    if text[:2] in ("0d", "0D"):
        return FloatImmediate(int(text[2:], 16), 64)
    return FloatImmediate(int.from_bytes(struct.pack("<d", float(text)), "little"), 64)


def constant_of(stream: TokenStream, strength: int = 0) -> Immediate | FloatImmediate:
    """Parse a constant expression whose operators bind at least as strongly as `strength`."""
    left = _unary(stream)
    while (binding := PRECEDENCE.get(stream.text, -1)) >= strength:
        operator = stream.take()
        right = constant_of(stream, binding + 1)
        if not isinstance(left, Immediate) or not isinstance(right, Immediate):
            raise stream.error("arithmetic on floating constants is not supported")
        if operator in "/%" and right.value == 0:
            raise stream.error("division by zero in a constant")
        left = Immediate(BINARY[operator](left.value, right.value))
    if strength == 0 and stream.accept("?"):
        yes = constant_of(stream)
        stream.expect(":")
        no = constant_of(stream)
        return yes if isinstance(left, Immediate) and left.value else no
    return left


def _unary(stream: TokenStream) -> Immediate | FloatImmediate:
    if stream.text in ("-", "+", "!", "~"):
        operator, value = stream.take(), _unary(stream)
        if isinstance(value, FloatImmediate):
            return value if operator == "+" else FloatImmediate(value.bits ^ 1 << (value.width - 1), value.width)
        changed = {"-": -value.value, "+": value.value, "!": int(not value.value), "~": ~value.value}
        return Immediate(changed[operator])
    if stream.accept("("):
        if stream.kind == "directive":  # a cast: (.s64) or (.u64)
            cast = stream.take()
            stream.expect(")")
            inner = _unary(stream)
            if isinstance(inner, Immediate) and cast == ".u64":
                return Immediate(inner.value & 0xFFFF_FFFF_FFFF_FFFF)
            return inner
        value = constant_of(stream)
        stream.expect(")")
        return value
    if stream.kind == "int":
        return Immediate(integer_of(stream.take()))
    if stream.kind == "float":
        return float_of(stream.take())
    if stream.accept("WARP_SZ"):
        return Immediate(32)
    raise stream.error(f"found {stream.text!r}, wanted a constant")


@dataclass
class Initial:
    """The bytes of an initialiser and the addresses in it, as they are read."""

    width: int
    data: bytearray = field(default_factory=bytearray)
    relocations: list[Relocation] = field(default_factory=list)


def initializer_of(stream: TokenStream, ptx_type: str, width: int, dimensions: list[int]) -> Initial:
    """Parse what follows `=`: a value, or nested lists for `dimensions`, of elements of `width` bytes."""
    found = Initial(width)
    _fill(stream, found, ptx_type, dimensions, 0)
    return found


def _fill(stream: TokenStream, found: Initial, ptx_type: str, dimensions: list[int], at: int) -> None:
    if not stream.accept("{"):
        _element(stream, found, ptx_type, at)
        return
    stride = found.width
    for extent in dimensions[1:]:
        stride *= extent
    while not stream.accept("}"):
        nested = stream.text == "{"
        _fill(stream, found, ptx_type, dimensions[1:], at)
        at += stride if nested else found.width
        if not stream.accept(","):
            stream.expect("}")
            break


def _element(stream: TokenStream, found: Initial, ptx_type: str, at: int) -> None:
    width = found.width
    if len(found.data) < at + width:
        found.data.extend(bytes(at + width - len(found.data)))
    shift, byte_of_address = 0, False
    if stream.kind == "int" and stream.tokens[stream.at + 1].text == "(":  # 0xFF00(symbol): one byte of an address
        mask = integer_of(stream.take())
        shift, byte_of_address = (mask & -mask).bit_length() - 1, True
        stream.expect("(")
    if stream.kind == "name" and stream.text != "WARP_SZ":
        symbol = stream.take()
        if symbol == "generic" and stream.accept("("):
            symbol = stream.take()
            stream.expect(")")
        addend = 0
        if stream.text in ("+", "-"):
            addend = constant_of_sum(stream)
        if byte_of_address:
            stream.expect(")")
        found.relocations.append(Relocation(at, width, symbol, addend, shift))
        return
    value = constant_of(stream)
    found.data[at : at + width] = element_bytes(stream, value, ptx_type, width)


def constant_of_sum(stream: TokenStream) -> int:
    """The sum of `+4`, `+-4`, `-4` that follows a name."""
    total = 0
    while stream.text in ("+", "-"):
        sign = -1 if stream.take() == "-" else 1
        value = constant_of(stream, PRECEDENCE["*"])
        if not isinstance(value, Immediate):
            raise stream.error("wanted an integer offset")
        total += sign * value.value
    return total


def element_bytes(stream: TokenStream, value: Immediate | FloatImmediate, ptx_type: str, width: int) -> bytes:
    """`value` as memory holds it in a variable of `ptx_type`."""
    if isinstance(value, Immediate) and ptx_type in ("f32", "f64"):
        value = FloatImmediate(int.from_bytes(struct.pack("<d", float(value.value)), "little"), 64)
    if isinstance(value, FloatImmediate):
        return bits_in_width(value, width).to_bytes(width, "little")
    return (value.value & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def bits_in_width(value: FloatImmediate, width: int) -> int:
    """The bits of `value` as a float of `width` bytes (4 or 8)."""
    if value.width == 8 * width:
        return value.bits
    code = {4: "<f", 8: "<d"}
    number = struct.unpack(code[value.width // 8], value.bits.to_bytes(value.width // 8, "little"))[0]
    try:
        return int.from_bytes(struct.pack(code[width], number), "little")
    except OverflowError:
        return 0x7F80_0000 if number > 0 else 0xFF80_0000
