"""Static libraries and rlibs: GNU and BSD `ar`, read lazily from a memory map.

Only member headers, the name table and the symbol map are read; a member's bytes are a view that costs nothing
until somebody looks. `lib.rmeta` (97 % of libcore's 41 MB) is never looked at.

Source: ar(5) of FreeBSD, and the GNU long-name and `/SYM64/` extensions as binutils documents them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rglink.diagnostics import InputError

MAGIC = b"!<arch>\n"
THIN_MAGIC = b"!<thin>\n"
HEADER = struct.Struct("16s12s6s6s8s10s2s")  # name, date, user, group, mode, size, end (all text)
END = b"`\n"
BSD_LONG_NAME = "#1/"
BSD_MAPS = ("__.SYMDEF", "__.SYMDEF SORTED", "__.SYMDEF_64", "__.SYMDEF_64 SORTED")
RUST_METADATA = "lib.rmeta"


@dataclass(frozen=True)
class Member:
    """One member: `offset` and `size` of its bytes in the archive, `data` a view of them."""

    name: str
    offset: int
    size: int
    data: memoryview


@dataclass(frozen=True)
class Archive:
    """An archive's members in file order, without symbol map, name table and Rust metadata.

    `symbols` maps a defined name to its member as the archive's own map says; None when there is no map.
    `metadata` is `lib.rmeta` of an rlib.
    """

    name: str
    members: tuple[Member, ...]
    symbols: Mapping[str, Member] | None
    metadata: Member | None


@dataclass(frozen=True)
class _Raw:
    """A member as its header gives it; `header` is where the header begins, which symbol maps refer to."""

    header: int
    member: Member


def read_archive(name: str, data: bytes | memoryview) -> Archive:
    """Read the headers and the symbol map of an `ar` archive or rlib.

    Raises:
        InputError: not an archive, a thin archive, or anything in it reaches outside the file.
    """
    view = memoryview(data)
    if view[:8] == THIN_MAGIC:
        raise InputError(
            f"{name}: is a thin archive, which holds names of files and no code: wanted an archive with its"
            " members inside",
            cure="make it without `T`: ar rcs",
        )
    if view[:8] != MAGIC:
        raise InputError(f"{name}: is not an archive")
    raw = _raw_members(name, view)
    map_ = next((r for r in raw if r.member.name in ("/", "/SYM64/") or r.member.name in BSD_MAPS), None)
    plain = [r for r in raw if r.member.name not in ("/", "/SYM64/", "//") and r.member.name not in BSD_MAPS]
    return Archive(
        name=name,
        members=tuple(r.member for r in plain if r.member.name != RUST_METADATA),
        symbols=None if map_ is None else MappingProxyType(_symbols(name, map_.member, plain)),
        metadata=next((r.member for r in plain if r.member.name == RUST_METADATA), None),
    )


def _raw_members(name: str, view: memoryview) -> list[_Raw]:
    """All members with their names resolved, the special ones included."""
    found: list[_Raw] = []
    long_names = b""
    offset = len(MAGIC)
    while offset < len(view):
        if offset + HEADER.size > len(view):
            raise InputError(
                f"{name}: header of member {len(found)} is truncated: {len(view) - offset} bytes, wanted {HEADER.size}"
            )
        field, _, _, _, _, size_text, end = HEADER.unpack_from(view, offset)
        if end != END or not size_text.strip().isdigit():
            raise InputError(f"{name}: header of member {len(found)} at {offset} is damaged")
        size, start = int(size_text), offset + HEADER.size
        if start + size > len(view):
            raise InputError(f"{name}: member {len(found)} is truncated: {len(view) - start} bytes, header says {size}")
        member = _named(name, field.rstrip(b" "), Member("", start, size, view[start : start + size]), long_names)
        if member.name == "//":
            long_names = bytes(member.data)
        found.append(_Raw(offset, member))
        offset = start + size + size % 2
    return found


def _named(archive: str, field: bytes, member: Member, long_names: bytes) -> Member:
    """The member with the name that its header's name field stands for."""
    text = field.decode("utf-8", "surrogateescape")
    if text in ("/", "//", "/SYM64/"):
        return Member(text, member.offset, member.size, member.data)
    if text.startswith("/") and text[1:].isdecimal():
        start = int(text[1:])
        end = long_names.find(b"\n", start)
        if start >= len(long_names) or end < 0:
            raise InputError(f"{archive}: name at {start} is outside the name table of {len(long_names)} bytes")
        long_name = long_names[start:end].removesuffix(b"/").decode("utf-8", "surrogateescape")
        return Member(long_name, member.offset, member.size, member.data)
    if text.startswith(BSD_LONG_NAME) and text[len(BSD_LONG_NAME) :].isdecimal():
        length = int(text[len(BSD_LONG_NAME) :])
        if length > member.size:
            raise InputError(f"{archive}: name of {length} bytes is outside its member of {member.size} bytes")
        stored = bytes(member.data[:length]).rstrip(b"\0").decode("utf-8", "surrogateescape")
        return Member(stored, member.offset + length, member.size - length, member.data[length:])
    return Member(text.removesuffix("/"), member.offset, member.size, member.data)


def _symbols(archive: str, map_: Member, members: list[_Raw]) -> dict[str, Member]:
    """Name to member; of a name listed twice the first, as linkers take it."""
    by_header = {raw.header: raw.member for raw in members}
    pairs = _bsd_map(archive, map_) if map_.name in BSD_MAPS else _gnu_map(archive, map_)
    symbols: dict[str, Member] = {}
    for symbol, header in pairs:
        if header not in by_header:
            raise InputError(f"{archive}: symbol map places {symbol!r} at {header}, where no member begins")
        symbols.setdefault(symbol, by_header[header])
    return symbols


def _gnu_map(archive: str, map_: Member) -> list[tuple[str, int]]:
    """Big-endian count, that many offsets of 4 bytes (`/`) or 8 (`/SYM64/`), then names that end in NUL."""
    width, code = (8, "Q") if map_.name == "/SYM64/" else (4, "I")
    data = bytes(map_.data)
    count = int.from_bytes(data[:width], "big")
    names_at = width * (count + 1)
    names = data[names_at:].split(b"\0")
    if names_at > len(data) or len(names) <= count:
        raise InputError(f"{archive}: symbol map of {len(data)} bytes is too short for {count} symbols")
    offsets = struct.unpack_from(f">{count}{code}", data, width)
    return [(text.decode("utf-8", "surrogateescape"), at) for text, at in zip(names, offsets, strict=False)]


def _bsd_map(archive: str, map_: Member) -> list[tuple[str, int]]:
    """Little-endian size of the pairs (name offset, member offset), the pairs, size of the names, the names."""
    width = 8 if "_64" in map_.name else 4
    data = bytes(map_.data)
    size = int.from_bytes(data[:width], "little")
    names_at = width + size + width
    if names_at > len(data) or size % (2 * width):
        raise InputError(f"{archive}: symbol map of {len(data)} bytes is too short for {size} bytes of pairs")
    names = data[names_at : names_at + int.from_bytes(data[width + size : names_at], "little")]
    code = "Q" if width == 8 else "I"
    pairs: list[tuple[str, int]] = []
    for name_at, member_at in struct.iter_unpack(f"<2{code}", data[width : width + size]):
        end = names.find(b"\0", name_at)
        if end < 0:
            raise InputError(f"{archive}: symbol map names a symbol at {name_at} of {len(names)} bytes of names")
        pairs.append((names[name_at:end].decode("utf-8", "surrogateescape"), member_at))
    return pairs
