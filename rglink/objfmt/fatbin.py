"""The entries of a fat binary: what kind, for which architecture, how large.

Source: layout observed on the output of nvFatbin and fatbinary 13.5 and checked against cuobjdump.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from rglink.diagnostics import InputError

MAGIC = 0xBA55ED50
VERSION = 1
HEADER = struct.Struct("<IHHQ")  # magic, version, header size, size of all entries
ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
# kind, version, header size, payload size (padded to 8), compressed size (0: not compressed), options offset,
# minor, major, architecture, identifier offset, identifier length, flags, key, uncompressed size

FLAG_LZ4 = 0x2000
FLAG_ZSTD = 0x8000
FLAG_SCRAMBLED = 0x10000  # nvFatbin makes compressed LTO-IR unreadable with a key in the header
FLAG_ARCH_SPECIFIC = 0x100000  # sm_90a
FLAG_FAMILY_SPECIFIC = 0x200000  # sm_100f

# An image of more is refused: a small damaged file must not ask for all memory.
LARGEST_IMAGE = 1 << 30

EntryKind = Literal["ptx", "elf", "ltoir", "group", "unknown"]
Compression = Literal["none", "zstd", "lz4", "scrambled"]
READABLE: tuple[Compression, ...] = ("none", "zstd")
KINDS: dict[int, EntryKind] = {1: "ptx", 2: "elf", 8: "ltoir", 0x100: "group"}


@dataclass(frozen=True)
class FatEntry:
    """One entry. `stored` are its bytes in the file without padding, `size` the bytes of `payload()`.

    An entry that is not compressed may end in up to 7 bytes of zero padding: the format does not keep the length.
    """

    file: str
    index: int
    kind: EntryKind
    sm: int
    suffix: Literal["", "a", "f"]
    identifier: str
    compression: Compression
    size: int
    stored: memoryview

    @property
    def arch(self) -> str:
        """The label as `--arch` spells it: "sm_90a", "compute_75" for PTX and LTO-IR."""
        return f"{'sm' if self.kind == 'elf' else 'compute'}_{self.sm}{self.suffix}"

    def payload(self) -> bytes:
        """The image itself.

        Raises:
            InputError: compressed by a method that rglink does not read, or damaged.
        """
        place = f"{self.file}: entry {self.index} ({self.kind} {self.arch})"
        if self.compression == "none":
            return bytes(self.stored)
        if self.compression not in READABLE:
            how = "by LZ4" if self.compression == "lz4" else "and scrambled"
            raise InputError(f"{place} is compressed {how}, wanted zstd or no compression")
        import zstandard

        try:
            declared = zstandard.get_frame_parameters(self.stored).content_size
            if declared != self.size:
                raise InputError(f"{place} holds {declared} bytes, its header says {self.size}")
            return zstandard.ZstdDecompressor().decompress(self.stored, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise InputError(f"{place} is damaged: {error}") from error


def read_fatbin(name: str, data: bytes | memoryview) -> tuple[FatEntry, ...]:
    """List the entries of a fat binary, or of several that follow each other as in `.nv_fatbin` sections.

    Payloads stay where they are until `FatEntry.payload`.

    Raises:
        InputError: not a fat binary, of another version, or an entry reaches outside the file.
    """
    view = memoryview(data)
    entries: list[FatEntry] = []
    offset = 0
    while offset < len(view):
        if offset and not any(view[offset : offset + 8]):
            offset += 8  # alignment between the fat binaries of a host object
            continue
        start, end = _extent(name, view, offset)
        entries += _entries(name, view[start:end], len(entries))
        offset = end
    if not offset:
        raise InputError(f"{name}: is empty, wanted a fat binary")
    return tuple(entries)


def _extent(name: str, view: memoryview, offset: int) -> tuple[int, int]:
    """Where the entries of the fat binary at `offset` begin and end."""
    if offset + HEADER.size > len(view):
        raise InputError(f"{name}: fat binary header is truncated: {len(view) - offset} bytes, wanted {HEADER.size}")
    magic, version, header_size, size = HEADER.unpack_from(view, offset)
    if magic != MAGIC:
        found = f"at {offset} is 0x{magic:08x}, wanted a fat binary (0x{MAGIC:08x})"
        raise InputError(f"{name}: {found}")
    if version != VERSION or header_size < HEADER.size:
        raise InputError(f"{name}: fat binary version is {version}, rglink reads {VERSION}")
    start, end = offset + header_size, offset + header_size + size
    if end > len(view):
        raise InputError(f"{name}: is truncated: {len(view)} bytes, its header says {end}")
    return start, end


def _entries(name: str, view: memoryview, first: int) -> Iterator[FatEntry]:
    offset = 0
    index = first
    while offset < len(view):
        if offset + ENTRY.size > len(view):
            raise InputError(f"{name}: header of entry {index} is truncated")
        fields = ENTRY.unpack_from(view, offset)
        header_size, padded = fields[2], fields[3]
        if header_size < ENTRY.size or offset + header_size + padded > len(view):
            raise InputError(
                f"{name}: entry {index} is truncated: {len(view) - offset} bytes are left,"
                f" its header says {header_size + padded}"
            )
        header = view[offset : offset + header_size]
        payload = view[offset + header_size : offset + header_size + padded]
        yield _entry(name, index, fields, header, payload)
        offset += header_size + padded
        index += 1


def _entry(name: str, index: int, fields: tuple[int, ...], header: memoryview, payload: memoryview) -> FatEntry:
    compressed, arch, flags, uncompressed = fields[4], fields[8], fields[11], fields[13]
    compression: Compression = "none"
    if flags & (FLAG_ZSTD | FLAG_LZ4):
        compression = "scrambled" if flags & FLAG_SCRAMBLED else "zstd" if flags & FLAG_ZSTD else "lz4"
        if compressed > len(payload):
            raise InputError(f"{name}: entry {index} is truncated: {len(payload)} bytes, its header says {compressed}")
        if uncompressed > LARGEST_IMAGE:
            raise InputError(
                f"{name}: entry {index} says that it holds {uncompressed} bytes, the limit is {LARGEST_IMAGE}"
            )
        payload = payload[:compressed]
    identifier = bytes(header[fields[9] : fields[9] + fields[10]]) if fields[9] else b""
    return FatEntry(
        file=name,
        index=index,
        kind=KINDS.get(fields[0], "unknown"),
        sm=arch,
        suffix="a" if flags & FLAG_ARCH_SPECIFIC else "f" if flags & FLAG_FAMILY_SPECIFIC else "",
        identifier=identifier.decode("utf-8", "backslashreplace"),
        compression=compression,
        size=len(payload) if compression == "none" else uncompressed,
        stored=payload,
    )
