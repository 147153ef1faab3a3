"""ELF headers, sections and symbols: the part that cubins and host objects share.

Read with `struct`, not with pyelftools: the proof of a link's output is on every link's path, where pyelftools
costs 80 ms of import, and it drops the bit of `st_other` that marks a kernel. Tests compare the two readers.

Source: System V gABI, chapters 4 and 5; LLVM's `BinaryFormat/ELF.h` for machine numbers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from rglink.diagnostics import InputError

MAGIC = b"\x7fELF"
EHDR = struct.Struct("<4sBBBBB7xHHIQQQIHHHHHH")
# magic, class, data, version, osabi, abiversion, type, machine, version, entry, phoff, shoff, flags,
# ehsize, phentsize, phnum, shentsize, shnum, shstrndx
SHDR = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, addr, offset, size, link, info, addralign, entsize
SYM = struct.Struct("<IBBHQQ")  # name, info, other, shndx, value, size

EM_CUDA = 190
ET_REL, ET_EXEC, ET_DYN = 1, 2, 3
SHT_SYMTAB, SHT_NOBITS, SHT_DYNSYM = 2, 8, 11
SHF_ALLOC, SHF_EXECINSTR = 0x2, 0x4
SHN_UNDEF, SHN_LORESERVE = 0, 0xFF00
STB_LOCAL, STB_WEAK = 0, 2
STT_OBJECT, STT_FUNC = 1, 2

MACHINES = {
    3: "x86",
    20: "PowerPC",
    21: "PowerPC 64",
    22: "S390",
    40: "ARM",
    62: "x86-64",
    183: "AArch64",
    EM_CUDA: "NVIDIA CUDA",
    224: "AMD GPU",
    243: "RISC-V",
    247: "BPF",
    258: "LoongArch",
}
HOST_MACHINES = frozenset((3, 20, 21, 22, 40, 62, 183, 243, 258))
# Where nvcc puts fat binaries: finished images, and relocatable ones.
DEVICE_SECTIONS = (".nv_fatbin", "__nv_relfatbin")


@dataclass(frozen=True)
class Section:
    """One section header; `offset` and `size` are bytes in the file (size in memory for NOBITS)."""

    index: int
    name: str
    type: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    entry_size: int


@dataclass(frozen=True)
class ElfSymbol:
    """One symbol; `other` is the raw `st_other` byte, `section` the index (0 when undefined)."""

    name: str
    type: int
    binding: int
    other: int
    section: int
    value: int
    size: int


@dataclass(frozen=True)
class Elf:
    """Headers of one 64-bit little-endian ELF file; contents stay in `data`."""

    name: str
    data: memoryview
    type: int
    machine: int
    osabi: int
    abi_version: int
    flags: int
    sections: tuple[Section, ...]

    def section(self, name: str) -> Section | None:
        """The first section called `name`."""
        return next((section for section in self.sections if section.name == name), None)

    def contents(self, section: Section) -> memoryview:
        """The bytes of a section, empty for NOBITS; bounds were checked by `read_elf`."""
        if section.type == SHT_NOBITS:
            return self.data[:0]
        return self.data[section.offset : section.offset + section.size]

    def symbols(self, table_type: int = SHT_SYMTAB) -> list[ElfSymbol]:
        """Symbols of the first table of that type, in file order, the null symbol included.

        Raises:
            InputError: the table or its names reach outside the file.
        """
        table = next((section for section in self.sections if section.type == table_type), None)
        if table is None:
            return []
        if table.size % SYM.size or table.link >= len(self.sections):
            raise InputError(f"{self.name}: symbol table {table.name!r} is damaged")
        names = bytes(self.contents(self.sections[table.link]))
        return [_symbol(self.name, names, fields) for fields in SYM.iter_unpack(self.contents(table))]


def describe_elf(data: memoryview) -> str:
    """What an ELF file is, from its first 20 bytes: "an ELF object for x86-64"."""
    if len(data) < 20:
        return "a truncated ELF file"
    order = "<" if data[5] == 1 else ">"
    kind, machine = struct.unpack_from(order + "HH", data, 16)
    kinds = {ET_REL: "object", ET_EXEC: "executable", ET_DYN: "executable or shared library", 4: "core dump"}
    host = "host " if machine in HOST_MACHINES else ""
    return f"an ELF {host}{kinds.get(kind, 'file')} for {MACHINES.get(machine, f'machine {machine}')}"


def machine_of(data: memoryview) -> int:
    """`e_machine` of a file that begins with the ELF magic, 0 when it is cut before."""
    if len(data) < 20:
        return 0
    (machine,) = struct.unpack_from("<H" if data[5] == 1 else ">H", data, 18)
    return int(machine)


def has_device_code(data: bytes | memoryview) -> bool:
    """Whether an ELF file has a section with device code; a damaged file has none."""
    try:
        return any(section.name in DEVICE_SECTIONS for section in read_elf("", data).sections)
    except InputError:
        return False


def read_elf(name: str, data: bytes | memoryview) -> Elf:
    """Read the headers of a 64-bit little-endian ELF file.

    Raises:
        InputError: not such a file, or a header or section reaches outside it.
    """
    view = memoryview(data)
    if view[:4] != MAGIC:
        raise InputError(f"{name}: is not an ELF file")
    if len(view) < EHDR.size:
        raise InputError(f"{name}: ELF header is truncated: {len(view)} bytes, wanted {EHDR.size}")
    header = EHDR.unpack_from(view)
    if header[1:3] != (2, 1):
        raise InputError(f"{name}: is {describe_elf(view)}, wanted 64-bit little-endian")
    shoff, shentsize, shnum, shstrndx = header[11], header[16], header[17], header[18]
    if shnum and shentsize != SHDR.size:
        raise InputError(f"{name}: ELF section headers have {shentsize} bytes, wanted {SHDR.size}")
    if shoff + shnum * SHDR.size > len(view):
        raise InputError(
            f"{name}: ELF section table is truncated: it ends at {shoff + shnum * SHDR.size},"
            f" the file has {len(view)} bytes"
        )
    raw = list(SHDR.iter_unpack(view[shoff : shoff + shnum * SHDR.size]))
    for index, fields in enumerate(raw):
        if fields[1] != SHT_NOBITS and fields[4] + fields[5] > len(view):
            raise InputError(
                f"{name}: ELF section {index} is truncated: it ends at {fields[4] + fields[5]},"
                f" the file has {len(view)} bytes"
            )
    if raw and (shstrndx >= len(raw) or raw[shstrndx][1] == SHT_NOBITS):
        raise InputError(f"{name}: ELF section names are missing: section {shstrndx} of {len(raw)}")
    names = bytes(view[raw[shstrndx][4] : raw[shstrndx][4] + raw[shstrndx][5]]) if raw else b""
    sections = tuple(
        Section(index, _text(name, names, f[0]), f[1], f[2], f[4], f[5], f[6], f[7], f[9])
        for index, f in enumerate(raw)
    )
    return Elf(name, view, header[6], header[7], header[4], header[5], header[12], sections)


def _symbol(file: str, names: bytes, fields: tuple[int, int, int, int, int, int]) -> ElfSymbol:
    name, info, other, shndx, value, size = fields
    return ElfSymbol(_text(file, names, name), info & 0xF, info >> 4, other, shndx, value, size)


def _text(file: str, table: bytes, offset: int) -> str:
    end = table.find(b"\0", offset)
    if offset and end < 0:
        raise InputError(f"{file}: ELF name at {offset} reaches outside its table of {len(table)} bytes")
    return table[offset:end].decode("utf-8", "surrogateescape") if end > offset else ""
