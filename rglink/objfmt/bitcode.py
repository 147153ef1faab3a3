"""LLVM bitcode: who made it and for which target, without LLVM.

A newer LLVM's bitcode or another target's must be refused by name before any parse, and an LLVM parse of a large
module takes longer than the question is worth. Blocks are skipped by their length words; function bodies are
never walked, and reading stops where the module record begins to list globals.

Source: LLVM's "LLVM Bitcode File Format" (BitCodeFormat.rst) and `Bitcode/LLVMBitCodes.h`.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from rglink.diagnostics import InputError

MAGIC = b"BC\xc0\xde"
WRAPPER_MAGIC = b"\xde\xc0\x17\x0b"
WRAPPER = struct.Struct("<IIIII")  # magic, version, offset, size, CPU type

END_BLOCK, ENTER_SUBBLOCK, DEFINE_ABBREV, UNABBREV_RECORD = range(4)
MODULE_BLOCK, IDENTIFICATION_BLOCK = 8, 13
IDENTIFICATION_STRING, IDENTIFICATION_EPOCH = 1, 2
MODULE_TRIPLE, MODULE_GLOBALVAR, MODULE_FUNCTION, MODULE_ALIAS = 2, 7, 8, 14
LISTS_GLOBALS = (MODULE_GLOBALVAR, MODULE_FUNCTION, MODULE_ALIAS)  # the triple comes before these
CHAR6 = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
LONGEST_RECORD = 1 << 16  # operands; identification and triple are far shorter

# An abbreviation's operand: ("literal", value), ("fixed", bits), ("vbr", bits), ("array", 0), ("char6", 0), ...
Operand = tuple[str, int]
ENCODINGS = {1: "fixed", 2: "vbr", 3: "array", 4: "char6", 5: "blob"}


@dataclass(frozen=True)
class BitcodeInfo:
    """`producer` is the identification string ("LLVM22.1.8"), "" in files older than LLVM 3.8; `llvm` its version
    as numbers, () when it is not LLVM's own; `triple` is "" when the module has none; `modules` how many there are.
    """

    producer: str
    llvm: tuple[int, ...]
    epoch: int
    triple: str
    modules: int


class _Cut(Exception):
    """The bit stream ended or made no sense."""


class _Bits:
    """A cursor over a bit stream; positions are bits from its start."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.end = len(data) * 8
        self.at = 0

    def fixed(self, width: int) -> int:
        """The next `width` bits, at most 64, as a number."""
        if width > 64 or self.at + width > self.end:
            raise _Cut
        first = self.at >> 3
        word = int.from_bytes(self.data[first : first + 9], "little")
        value = word >> (self.at & 7) & ((1 << width) - 1)
        self.at += width
        return value

    def vbr(self, width: int) -> int:
        """A variable-width number in chunks of `width` bits."""
        if width < 2:
            raise _Cut
        more = 1 << (width - 1)
        value = shift = 0
        while True:
            chunk = self.fixed(width)
            value |= (chunk & (more - 1)) << shift
            if not chunk & more:
                return value
            shift += width - 1
            if shift > 64:
                raise _Cut

    def align(self) -> None:
        """Go on at the next 32-bit boundary."""
        self.at = (self.at + 31) & ~31

    def skip_words(self, count: int) -> None:
        """Leave out `count` 32-bit words."""
        if self.at + count * 32 > self.end:
            raise _Cut
        self.at += count * 32

    def number(self, operand: Operand) -> int:
        """One scalar by its abbreviation."""
        encoding, value = operand
        if encoding == "literal":
            return value
        if encoding == "char6":
            return ord(CHAR6[self.fixed(6)])
        if encoding == "fixed":
            return self.fixed(value)
        if encoding == "vbr":
            return self.vbr(value) if value else 0
        raise _Cut


def read_bitcode(name: str, data: bytes | memoryview) -> BitcodeInfo:
    """Read the identification and the target triple of raw or wrapped bitcode.

    Raises:
        InputError: not bitcode, or cut or damaged as far as it is read (all blocks' lengths, the identification
            and the head of the module).
    """
    stream = _unwrap(name, memoryview(data))
    if stream[:4] != MAGIC:
        raise InputError(f"{name}: is not LLVM bitcode")
    if len(stream) % 4:
        raise InputError(f"{name}: bitcode is truncated: {len(stream)} bytes are not a whole number of words")
    try:
        return _read_stream(_Bits(stream))
    except _Cut:
        raise InputError(f"{name}: bitcode is truncated or damaged") from None


def _unwrap(name: str, data: memoryview) -> memoryview:
    if data[:4] != WRAPPER_MAGIC:
        return data
    if len(data) < WRAPPER.size:
        raise InputError(f"{name}: bitcode wrapper is truncated: {len(data)} bytes, wanted {WRAPPER.size}")
    _, _, offset, size, _ = WRAPPER.unpack_from(data)
    if offset + size > len(data):
        raise InputError(f"{name}: wrapped bitcode is truncated: {len(data)} bytes, wrapper says {offset + size}")
    return data[offset : offset + size]


def _read_stream(bits: _Bits) -> BitcodeInfo:
    """Walk the top-level blocks, and into the first identification and the first module."""
    bits.skip_words(1)
    producer, epoch, triple, modules = "", 0, "", 0
    while bits.at < bits.end:
        if bits.fixed(2) != ENTER_SUBBLOCK:
            raise _Cut
        block = bits.vbr(8)
        width, end = _enter(bits)
        if block == IDENTIFICATION_BLOCK and not producer:
            producer, epoch = _identification(bits, width)
        elif block == MODULE_BLOCK:
            triple = _triple(bits, width) if not modules else triple
            modules += 1
        bits.at = end
    return BitcodeInfo(producer, _version(producer), epoch, triple, modules)


def _version(producer: str) -> tuple[int, ...]:
    # rustc's own LLVM says "LLVM22.1.8-rust-1.96.0-stable"; Apple's says "APPLE_1_...".
    match = re.match(r"LLVM(\d+(?:\.\d+)*)", producer)
    return tuple(map(int, match[1].split("."))) if match else ()


def _enter(bits: _Bits) -> tuple[int, int]:
    """The rest of ENTER_SUBBLOCK: (width of abbreviation numbers, position of the block's end)."""
    width = bits.vbr(4)
    bits.align()
    words = bits.fixed(32)
    start = bits.at
    bits.skip_words(words)
    end, bits.at = bits.at, start
    return width, end


def _identification(bits: _Bits, width: int) -> tuple[str, int]:
    producer, epoch = "", 0
    abbreviations: list[list[Operand]] = []
    while (record := _next_record(bits, width, abbreviations)) is not None:
        if record[0] == IDENTIFICATION_STRING:
            producer = _text(record)
        elif record[0] == IDENTIFICATION_EPOCH and len(record) > 1:
            epoch = record[1]
    return producer, epoch


def _triple(bits: _Bits, width: int) -> str:
    abbreviations: list[list[Operand]] = []
    while (record := _next_record(bits, width, abbreviations)) is not None:
        if record[0] == MODULE_TRIPLE:
            return _text(record)
        if record[0] in LISTS_GLOBALS:
            return ""
    return ""


def _text(record: list[int]) -> str:
    return bytes(byte & 0xFF for byte in record[1:]).decode("utf-8", "backslashreplace")


def _next_record(bits: _Bits, width: int, abbreviations: list[list[Operand]]) -> list[int] | None:
    """The next record of this block as [code, operands...], None at its end; blocks inside are skipped."""
    while True:
        number = bits.fixed(width)
        if number == END_BLOCK:
            return None
        if number == ENTER_SUBBLOCK:
            bits.vbr(8)
            _, bits.at = _enter(bits)
        elif number == DEFINE_ABBREV:
            abbreviations.append(_define_abbreviation(bits))
        elif number == UNABBREV_RECORD:
            code, count = bits.vbr(6), bits.vbr(6)
            if count > LONGEST_RECORD:
                raise _Cut
            return [code, *(bits.vbr(6) for _ in range(count))]
        elif number - 4 < len(abbreviations):
            return _abbreviated(bits, abbreviations[number - 4])
        else:
            raise _Cut


def _define_abbreviation(bits: _Bits) -> list[Operand]:
    operands: list[Operand] = []
    for _ in range(bits.vbr(5)):
        if bits.fixed(1):
            operands.append(("literal", bits.vbr(8)))
            continue
        encoding = ENCODINGS.get(bits.fixed(3))
        if encoding is None:
            raise _Cut
        operands.append((encoding, bits.vbr(5) if encoding in ("fixed", "vbr") else 0))
    if not operands:
        raise _Cut
    return operands


def _abbreviated(bits: _Bits, operands: list[Operand]) -> list[int]:
    record: list[int] = []
    for index, operand in enumerate(operands):
        if operand[0] not in ("array", "blob"):
            record.append(bits.number(operand))
            continue
        count = bits.vbr(6)
        if count > LONGEST_RECORD:
            raise _Cut
        if operand[0] == "array":
            if index + 2 != len(operands):
                raise _Cut
            record += [bits.number(operands[index + 1]) for _ in range(count)]
        else:
            bits.align()
            record += [bits.fixed(8) for _ in range(count)]
            bits.align()
        break
    if not record:
        raise _Cut
    return record
