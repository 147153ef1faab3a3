"""The `.rgo` container: what `rgcc -c` writes and the link reads. docs/rgo.md documents the layout.

    offset  size  field
    0       8     magic 93 52 47 4F 0D 0A 1A 0A
    8       2     version (1)
    10      2     zero
    12      4     section count
    16      8     size of the file
    24      16    digest of the header, with this field zero, and of the section table
    40      48*n  section table, by section:
                  +0   u16  type: 1 producer, 2 summary, 3 optimized, 4 unoptimized, 5 metadata
                  +2   u16  flags: 1 critical, 2 zstd
                  +4   u32  architecture: lowest sm number that may use it, 0 for any
                  +8   u64  offset in the file
                  +16  u64  stored length
                  +24  u64  length when decompressed
                  +32  16   digest of the stored bytes
    ...           sections, back to back in table order, to the end of the file

All numbers are little-endian, all lengths bytes. A digest is the first 16 bytes of SHA-256, which is the fastest
of hashlib's on machines with SHA instructions. No byte of the file is outside all digests.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from rglink.diagnostics import InputError
from rglink.objfmt import rgo_payload
from rglink.objfmt.rgo_payload import CrateMetadata as CrateMetadata
from rglink.objfmt.rgo_payload import Producer as Producer
from rglink.objfmt.summary import ModuleSummary

MAGIC = b"\x93RGO\r\n\x1a\n"
VERSION = 1
HEADER = struct.Struct("<8sHHIQ16s")  # magic, version, zero, section count, file size, digest
SECTION = struct.Struct("<HHIQQQ16s")  # type, flags, architecture, offset, stored, length, digest

PRODUCER, SUMMARY, OPTIMIZED, UNOPTIMIZED, METADATA = range(1, 6)
TYPE_NAMES = {
    PRODUCER: "producer",
    SUMMARY: "summary",
    OPTIMIZED: "optimized",
    UNOPTIMIZED: "unoptimized",
    METADATA: "metadata",
}
CRITICAL, ZSTD = 1, 2

MOST_SECTIONS = 1 << 16
# A section that says it is longer when decompressed is refused before a byte of it is allocated.
LONGEST = {
    PRODUCER: 1 << 20,
    SUMMARY: 1 << 28,
    OPTIMIZED: 1 << 30,
    UNOPTIMIZED: 1 << 30,
    METADATA: 1 << 29,
}
# zstd 3 packs alloc's bitcode to 44 % and its metadata to 36 %; level 9 gains 2 % in four times the time.
ZSTD_LEVEL = 3
# Below this a zstd frame is hardly smaller than the bytes, and reading it costs the import.
SHORTEST_COMPRESSED = 1 << 9


@dataclass(frozen=True)
class Variant:
    """Optimized bitcode for the architectures from `arch` (an sm number such as 90) up."""

    arch: int
    optimized: bytes


@dataclass(frozen=True)
class Rgo:
    """A compiled crate: bitcode after rgcc's optimizer, before it, its summary, and metadata for rustc.

    `metadata` holds the crate itself and all it depends on, without the sysroot, each once by hash.
    `variants` replace `optimized` from their architecture on.
    """

    producer: Producer
    optimized: bytes
    unoptimized: bytes
    summary: ModuleSummary
    metadata: tuple[CrateMetadata, ...] = ()
    variants: tuple[Variant, ...] = ()


@dataclass(frozen=True)
class RgoSection:
    """One line of the section table; `stored` are the bytes in the file, `length` what they decompress to."""

    index: int
    type: int
    critical: bool
    compressed: bool
    arch: int
    offset: int
    length: int
    digest: bytes
    stored: memoryview

    @property
    def type_name(self) -> str:
        return TYPE_NAMES.get(self.type, f"type {self.type}")


@dataclass(frozen=True)
class RgoReader:
    """An `.rgo` whose table and digests were checked and whose sections are decompressed when asked for.

    Every method raises InputError when the section's contents make no sense.
    """

    name: str
    version: int
    sections: tuple[RgoSection, ...]

    def producer(self) -> Producer:
        return rgo_payload.decode_producer(self.name, self._only(PRODUCER))

    def summary(self) -> ModuleSummary:
        return rgo_payload.decode_summary(self.name, self._only(SUMMARY))

    def optimized(self, sm: int = 0) -> bytes:
        """Optimized bitcode for an sm number: of the variants that it may use the highest, else the general one."""
        usable = [section for section in self._all(OPTIMIZED) if section.arch <= sm]
        return self._contents(max(usable, key=lambda section: section.arch))

    def unoptimized(self) -> bytes:
        return self._only(UNOPTIMIZED)

    def metadata(self) -> tuple[CrateMetadata, ...]:
        """The metadata closure, in file order.

        Raises:
            InputError: also when a hash occurs twice or a file name is not a plain one.
        """
        found = tuple(
            rgo_payload.decode_metadata(self.name, self._contents(section)) for section in self._all(METADATA)
        )
        if len({entry.hash for entry in found}) != len(found):
            raise InputError(f"{self.name}: metadata of one crate hash is there twice")
        return found

    def variant_arches(self) -> tuple[int, ...]:
        """The architectures from which variants hold, sorted."""
        return tuple(sorted(section.arch for section in self._all(OPTIMIZED) if section.arch))

    def load(self) -> Rgo:
        """Everything at once."""
        return Rgo(
            self.producer(),
            self.optimized(),
            self.unoptimized(),
            self.summary(),
            self.metadata(),
            tuple(Variant(arch, self.optimized(arch)) for arch in self.variant_arches()),
        )

    def _all(self, type_: int) -> list[RgoSection]:
        return [section for section in self.sections if section.type == type_]

    def _only(self, type_: int) -> bytes:
        return self._contents(self._all(type_)[0])

    def _contents(self, section: RgoSection) -> bytes:
        if not section.compressed:
            return bytes(section.stored)
        return _decompress(self.name, section)


def write_rgo(rgo: Rgo) -> bytes:
    """The file's bytes; equal inputs give equal bytes with one version of zstd.

    Raises:
        ValueError: metadata of one hash twice, two variants of one architecture, a variant for 0, a metadata file
            name that is not a plain one, or more than a reader takes.
    """
    arches = [variant.arch for variant in rgo.variants]
    if len(set(arches)) != len(arches) or any(not 0 < arch < 1 << 32 for arch in arches):
        raise ValueError(f"variants must have distinct architectures above 0: {arches}")
    if len({entry.hash for entry in rgo.metadata}) != len(rgo.metadata):
        raise ValueError("metadata of one crate hash is there twice")
    contents = [
        (PRODUCER, 0, rgo_payload.encode_producer(rgo.producer)),
        (SUMMARY, CRITICAL, rgo_payload.encode_summary(rgo.summary)),
        (OPTIMIZED, CRITICAL, rgo.optimized),
    ]
    by_arch = sorted(rgo.variants, key=lambda variant: variant.arch)
    variants = [(variant.arch, variant.optimized) for variant in by_arch]
    tail = [(UNOPTIMIZED, 0, rgo.unoptimized)]
    tail += [(METADATA, 0, rgo_payload.encode_metadata(entry)) for entry in rgo.metadata]
    rows = [(type_, flags, 0, data) for type_, flags, data in contents]
    rows += [(OPTIMIZED, CRITICAL, arch, data) for arch, data in variants]
    rows += [(type_, flags, 0, data) for type_, flags, data in tail]
    return _assemble(rows)


def read_rgo(name: str, data: bytes | memoryview) -> RgoReader:
    """Check an `.rgo` whole and make its sections available.

    All digests are checked here, at about 1 GB/s, so that damage anywhere is noticed by whoever opens the file,
    even where only the summary is read afterwards; nothing is decompressed yet.

    Raises:
        InputError: not an `.rgo`, of a newer version, truncated, damaged, with trailing bytes, overlapping or
            unknown critical sections, or a section missing or twice.
    """
    view = memoryview(data)
    count = _check_header(name, view)
    table_end = HEADER.size + count * SECTION.size
    sections = tuple(_sections(name, view, count))
    _check_extents(name, sections, table_end, len(view))
    for section in sections:
        if _digest(section.stored) != section.digest:
            raise InputError(f"{name}: section {section.index} ({section.type_name}) is damaged: wrong digest")
        _check_section(name, section)
    _check_presence(name, sections)
    return RgoReader(name, VERSION, sections)


def _check_header(name: str, view: memoryview) -> int:
    """The number of sections, once the header and the table are known to be whole."""
    if view[: len(MAGIC)] != MAGIC:
        raise InputError(f"{name}: is not an .rgo")
    if len(view) < HEADER.size:
        raise InputError(f"{name}: header is truncated: {len(view)} bytes, wanted {HEADER.size}")
    _, version, zero, count, size, digest = HEADER.unpack_from(view)
    if version > VERSION:
        raise InputError(
            f"{name}: is an .rgo of version {version}, this rglink reads version {VERSION}",
            cure="use the rglink that came with the rgcc which made the file, or a newer one",
        )
    if version == 0 or zero:
        raise InputError(f"{name}: header is damaged")
    if len(view) < size:
        raise InputError(f"{name}: is truncated: {len(view)} bytes, header says {size}")
    if len(view) > size:
        raise InputError(f"{name}: has {len(view) - size} bytes after its end: header says {size} bytes")
    table_end = HEADER.size + count * SECTION.size
    if count > MOST_SECTIONS or table_end > len(view):
        raise InputError(f"{name}: section table is truncated: {count} sections in a file of {len(view)} bytes")
    blank = HEADER.pack(MAGIC, version, zero, count, size, bytes(16))
    if _digest(blank + view[HEADER.size : table_end]) != digest:
        raise InputError(f"{name}: header or section table is damaged: wrong digest")
    return int(count)


def _sections(name: str, view: memoryview, count: int) -> Iterator[RgoSection]:
    for index in range(count):
        type_, flags, arch, offset, stored, length, digest = SECTION.unpack_from(
            view, HEADER.size + index * SECTION.size
        )
        if flags & ~(CRITICAL | ZSTD):
            raise InputError(f"{name}: section {index} has unknown flags 0x{flags:x}")
        if offset + stored > len(view):
            raise InputError(
                f"{name}: section {index} is truncated: {max(0, len(view) - offset)} bytes, header says {stored}"
            )
        yield RgoSection(
            index,
            type_,
            bool(flags & CRITICAL),
            bool(flags & ZSTD),
            arch,
            offset,
            length,
            digest,
            view[offset : offset + stored],
        )


def _check_extents(name: str, sections: tuple[RgoSection, ...], start: int, end: int) -> None:
    """Sections follow each other from the table's end to the file's, with no overlap and no byte between."""
    for section in sections:
        if section.offset < start:
            raise InputError(f"{name}: section {section.index} overlaps what comes before it")
        if section.offset > start:
            raise InputError(f"{name}: {section.offset - start} bytes before section {section.index} belong to nothing")
        start = section.offset + len(section.stored)
    if start != end:
        raise InputError(f"{name}: {end - start} bytes after the last section belong to nothing")


def _check_section(name: str, section: RgoSection) -> None:
    place = f"{name}: section {section.index}"
    if section.type not in LONGEST:
        if section.critical:
            raise InputError(f"{place} is of unknown type {section.type} and critical: made by a newer rgcc")
        return
    if section.length > LONGEST[section.type]:
        raise InputError(
            f"{place} ({section.type_name}) says that it holds {section.length} bytes,"
            f" the limit is {LONGEST[section.type]}"
        )
    if not section.compressed and section.length != len(section.stored):
        raise InputError(f"{place} ({section.type_name}) has {len(section.stored)} bytes, wanted {section.length}")
    if section.arch and section.type != OPTIMIZED:
        raise InputError(f"{place} ({section.type_name}) is for sm_{section.arch}, wanted any architecture")


def _check_presence(name: str, sections: tuple[RgoSection, ...]) -> None:
    keys = [(section.type, section.arch) for section in sections if section.type in LONGEST]
    for type_ in (PRODUCER, SUMMARY, OPTIMIZED, UNOPTIMIZED):
        if (type_, 0) not in keys:
            raise InputError(f"{name}: has no {TYPE_NAMES[type_]} section")
    single = [key for key in keys if key[0] != METADATA]
    for type_, arch in single:
        if single.count((type_, arch)) > 1:
            raise InputError(f"{name}: has two {TYPE_NAMES[type_]} sections for architecture {arch}")


def _assemble(rows: list[tuple[int, int, int, bytes]]) -> bytes:
    """Header, table and sections from (type, flags, architecture, contents)."""
    table, body = bytearray(), bytearray()
    start = HEADER.size + len(rows) * SECTION.size
    if len(rows) > MOST_SECTIONS:
        raise ValueError(f"{len(rows)} sections, the limit is {MOST_SECTIONS}")
    for type_, flags, arch, data in rows:
        if len(data) > LONGEST[type_]:
            raise ValueError(f"{TYPE_NAMES[type_]} of {len(data)} bytes, the limit is {LONGEST[type_]}")
        stored = _compress(data)
        flags |= 0 if stored is data else ZSTD
        table += SECTION.pack(type_, flags, arch, start + len(body), len(stored), len(data), _digest(stored))
        body += stored
    size = start + len(body)
    blank = HEADER.pack(MAGIC, VERSION, 0, len(rows), size, bytes(16))
    return HEADER.pack(MAGIC, VERSION, 0, len(rows), size, _digest(blank + table)) + table + body


def _digest(data: bytes | bytearray | memoryview) -> bytes:
    return hashlib.sha256(data).digest()[:16]


def _compress(data: bytes) -> bytes:
    """The zstd frame of `data`, or `data` itself when that is not longer."""
    if len(data) < SHORTEST_COMPRESSED:
        return data
    import zstandard

    # One thread and no checksum: the frame depends on the bytes and the library's version alone.
    frame = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_content_size=True, threads=0).compress(data)
    return frame if len(frame) < len(data) else data


def _decompress(name: str, section: RgoSection) -> bytes:
    import zstandard

    place = f"{name}: section {section.index} ({section.type_name})"
    try:
        # `decompress` allocates what the frame says, whatever limit it is given, so look first.
        declared = zstandard.get_frame_parameters(section.stored).content_size
        if declared != section.length:
            raise InputError(f"{place} decompresses to {declared} bytes, its header says {section.length}")
        if not declared:
            return b""
        return zstandard.ZstdDecompressor().decompress(section.stored, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise InputError(f"{place} is damaged: {error}") from error
