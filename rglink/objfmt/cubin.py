"""What is in a cubin: its architecture, kernels with their resources, variables and undefined names.

Used to prove a link's output, so it says what the machine code holds and not what was asked for.

Source: layouts observed on ptxas and nvlink output and checked against cuobjdump; record numbers are those that
cuobjdump prints as EIATTR_*. LLVM's `BinaryFormat/ELF.h` has the flags of both ABI versions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from rglink.diagnostics import InputError
from rglink.objfmt.elf import (
    EM_CUDA,
    ET_EXEC,
    SHN_LORESERVE,
    SHN_UNDEF,
    STB_LOCAL,
    STB_WEAK,
    STT_FUNC,
    STT_OBJECT,
    Elf,
    ElfSymbol,
    read_elf,
)

STT_CUDA_OBJECT = 13  # variables of relocatable cubins
STO_CUDA_ENTRY = 0x10  # bit of st_other that makes a function a kernel
ABI_V1, ABI_V2 = 7, 8  # e_ident[EI_ABIVERSION]; 8 since CUDA 13
EF_CUDA_ACCELERATORS_V1 = 0x800
COMPAT_ACCELERATOR_TARGET = 0x09  # record of .nv.compat: 1 for sm_90a, sm_100a, ...

# Records of .nv.info and .nv.info.<kernel>: u8 format, u8 attribute, then a u8, a u16, or a u16 length and bytes.
NVAL, BVAL, HVAL, SVAL = 1, 2, 3, 4
MAX_THREADS = 0x05
PARAM_CBANK = 0x0A
REQUIRED_THREADS = 0x10
FRAME_SIZE = 0x11
MIN_STACK_SIZE = 0x12
KPARAM_INFO = 0x17
REGCOUNT = 0x2F
KPARAM_INFO_V2 = 0x45
NUM_BARRIERS = 0x4C
ANNOTATIONS = 0x55
ANNOTATION_SPILL = 1

INFO_PAIR = struct.Struct("<II")  # symbol index, value: REGCOUNT, FRAME_SIZE, MIN_STACK_SIZE
INFO_DIMS = struct.Struct("<III")  # x, y, z
INFO_PARAM = struct.Struct("<IHHI")  # index, ordinal, offset, size << 18 (KPARAM_INFO) or size (.._V2)

# From sm_90 on the first 1,024 bytes of a final kernel's shared section belong to the system.
RESERVED_SHARED = 1024
# Names that ptxas leaves undefined for the loader.
LOADER_NAMES = (".nv.", "__UFT", "__UDT")

Dims = tuple[int, int, int]


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter: offset and size in bytes within the parameter block."""

    ordinal: int
    offset: int
    size: int


@dataclass(frozen=True)
class CubinKernel:
    """A kernel and what it takes; sizes in bytes.

    `shared` is static shared memory without what the system reserves; `constant` is bank 0 (parameters and
    launch data); `spills` counts spill instructions, not bytes; `max_threads` and `required_threads` are the
    launch bounds, None when there are none.
    """

    name: str
    registers: int
    shared: int
    frame: int
    min_stack: int
    constant: int
    barriers: int
    spills: int
    code: int
    max_threads: Dims | None
    required_threads: Dims | None
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True)
class CubinFunction:
    """A device function that is not a kernel; `code` in bytes."""

    name: str
    binding: Literal["local", "global", "weak"]
    code: int
    registers: int
    frame: int


@dataclass(frozen=True)
class CubinVariable:
    """A variable; `space` is the PTX state space."""

    name: str
    binding: Literal["local", "global", "weak"]
    space: Literal["global", "constant", "shared", "local", "unknown"]
    section: str
    size: int


@dataclass(frozen=True)
class Cubin:
    """One cubin. `sm` is 90 for sm_90a and `suffix` "a".

    "f" cannot be told from no suffix by a cubin's contents: ptxas writes the same bytes for sm_100 and sm_100f.
    `constant_banks` are (bank, bytes) of the whole module, bank 3 being `.const` variables.
    """

    name: str
    sm: int
    suffix: Literal["", "a"]
    relocatable: bool
    kernels: tuple[CubinKernel, ...]
    functions: tuple[CubinFunction, ...]
    variables: tuple[CubinVariable, ...]
    undefined: tuple[str, ...]
    constant_banks: tuple[tuple[int, int], ...]

    @property
    def arch(self) -> str:
        return f"sm_{self.sm}{self.suffix}"


# What .nv.info says: (attribute, symbol index) -> value.
ModuleRecords = Mapping[tuple[int, int], int]


def read_cubin(name: str, data: bytes | memoryview) -> Cubin:
    """Read a cubin's symbols and resources.

    Raises:
        InputError: not a cubin, or damaged.
    """
    elf = read_elf(name, data)
    if elf.machine != EM_CUDA:
        raise InputError(f"{name}: is an ELF file for machine {elf.machine}, wanted a cubin ({EM_CUDA})")
    symbols = elf.symbols()
    records = dict(_module_records(elf))
    functions = [(i, s) for i, s in enumerate(symbols) if s.type == STT_FUNC and s.section != SHN_UNDEF]
    sm, suffix = _architecture(elf)
    sizes = {section.name: section.size for section in elf.sections}
    reserved = RESERVED_SHARED if sm >= 90 and elf.type == ET_EXEC else 0
    return Cubin(
        name=name,
        sm=sm,
        suffix=suffix,
        relocatable=elf.type != ET_EXEC,
        kernels=tuple(
            _kernel(elf, index, symbol, records, sizes, reserved)
            for index, symbol in sorted(functions, key=lambda pair: pair[1].name)
            if symbol.other & STO_CUDA_ENTRY
        ),
        functions=tuple(
            CubinFunction(s.name, _binding(s), s.size, records.get((REGCOUNT, i), 0), records.get((FRAME_SIZE, i), 0))
            for i, s in sorted(functions, key=lambda pair: pair[1].name)
            if not s.other & STO_CUDA_ENTRY
        ),
        variables=tuple(sorted(_variables(elf, symbols), key=lambda variable: variable.name)),
        undefined=tuple(
            sorted(s.name for s in symbols if s.section == SHN_UNDEF and s.name and not s.name.startswith(LOADER_NAMES))
        ),
        constant_banks=tuple(sorted(_constant_banks(sizes))),
    )


def _architecture(elf: Elf) -> tuple[int, Literal["", "a"]]:
    if elf.abi_version == ABI_V1:
        return elf.flags & 0xFF, "a" if elf.flags & EF_CUDA_ACCELERATORS_V1 else ""
    if elf.abi_version != ABI_V2:
        raise InputError(f"{elf.name}: cubin ABI version is {elf.abi_version}, rglink knows {ABI_V1} and {ABI_V2}")
    compat = elf.section(".nv.compat")
    accelerated = compat is not None and any(
        attribute == COMPAT_ACCELERATOR_TARGET and value[:1] == b"\x01"
        for attribute, value in _records(elf, ".nv.compat")
    )
    return elf.flags >> 8 & 0xFF, "a" if accelerated else ""


def _records(elf: Elf, section_name: str) -> Iterator[tuple[int, bytes]]:
    """(attribute, value) of one info section, nothing when it is absent."""
    section = elf.section(section_name)
    if section is None:
        return
    data = bytes(elf.contents(section))
    offset = 0
    while offset < len(data):
        if offset + 4 > len(data):
            raise InputError(f"{elf.name}: section {section_name!r} ends in a cut record")
        form, attribute = data[offset], data[offset + 1]
        if form not in (NVAL, BVAL, HVAL, SVAL):
            raise InputError(f"{elf.name}: section {section_name!r} has a record of unknown form {form}")
        length = int.from_bytes(data[offset + 2 : offset + 4], "little") if form == SVAL else 0
        if offset + 4 + length > len(data):
            raise InputError(f"{elf.name}: section {section_name!r} ends in a cut record")
        if form == SVAL:
            yield attribute, data[offset + 4 : offset + 4 + length]
        else:
            yield attribute, data[offset + 2 : offset + 4]
        offset += 4 + length


def _module_records(elf: Elf) -> Iterator[tuple[tuple[int, int], int]]:
    for attribute, value in _records(elf, ".nv.info"):
        if attribute in (REGCOUNT, FRAME_SIZE, MIN_STACK_SIZE) and len(value) == INFO_PAIR.size:
            symbol, number = INFO_PAIR.unpack(value)
            yield (attribute, symbol), number


def _kernel(
    elf: Elf, index: int, symbol: ElfSymbol, records: ModuleRecords, sizes: Mapping[str, int], reserved: int
) -> CubinKernel:
    own = list(_records(elf, f".nv.info.{symbol.name}"))
    shared = sizes.get(f".nv.shared.{symbol.name}", 0)
    return CubinKernel(
        name=symbol.name,
        registers=records.get((REGCOUNT, index), 0),
        shared=shared - reserved if shared >= reserved else shared,
        frame=records.get((FRAME_SIZE, index), 0),
        min_stack=records.get((MIN_STACK_SIZE, index), 0),
        constant=sizes.get(f".nv.constant0.{symbol.name}", 0),
        barriers=next((value[0] for attribute, value in own if attribute == NUM_BARRIERS), 0),
        spills=sum(_spills(value) for attribute, value in own if attribute == ANNOTATIONS),
        code=symbol.size,
        max_threads=_dims(own, MAX_THREADS),
        required_threads=_dims(own, REQUIRED_THREADS),
        parameters=tuple(sorted(_parameters(own), key=lambda parameter: parameter.ordinal)),
    )


def _dims(own: list[tuple[int, bytes]], wanted: int) -> Dims | None:
    for attribute, value in own:
        if attribute == wanted and len(value) == INFO_DIMS.size:
            x, y, z = INFO_DIMS.unpack(value)
            return x, y, z
    return None


def _parameters(own: list[tuple[int, bytes]]) -> Iterator[Parameter]:
    for attribute, value in own:
        if attribute in (KPARAM_INFO, KPARAM_INFO_V2) and len(value) == INFO_PARAM.size:
            _, ordinal, offset, bits = INFO_PARAM.unpack(value)
            yield Parameter(ordinal, offset, bits >> 18 if attribute == KPARAM_INFO else bits)


def _spills(value: bytes) -> int:
    """Spill annotations of one record: pairs (kind, code offset). Pairs of other kinds may be of another length,
    so counting stops at the first."""
    count = 0
    for offset in range(0, len(value) - 7, 8):
        if int.from_bytes(value[offset : offset + 4], "little") != ANNOTATION_SPILL:
            break
        count += 1
    return count


def _variables(elf: Elf, symbols: list[ElfSymbol]) -> Iterator[CubinVariable]:
    for symbol in symbols:
        if symbol.type not in (STT_OBJECT, STT_CUDA_OBJECT):
            continue
        if symbol.section == SHN_UNDEF or symbol.section >= SHN_LORESERVE:
            continue
        if symbol.section >= len(elf.sections):
            raise InputError(f"{elf.name}: symbol {symbol.name!r} is in section {symbol.section}, which is not")
        section = elf.sections[symbol.section].name
        if section.startswith(".nv.constant0.") or symbol.name.startswith("__nv_reservedSMEM"):
            continue  # a kernel's parameter block, and what the loader reserves
        yield CubinVariable(symbol.name, _binding(symbol), _space(section), section, symbol.size)


def _space(section: str) -> Literal["global", "constant", "shared", "local", "unknown"]:
    if section.startswith(".nv.global"):
        return "global"
    if section.startswith(".nv.constant"):
        return "constant"
    if section.startswith(".nv.shared"):
        return "shared"
    if section.startswith(".nv.local"):
        return "local"
    return "unknown"


def _binding(symbol: ElfSymbol) -> Literal["local", "global", "weak"]:
    if symbol.binding == STB_LOCAL:
        return "local"
    return "weak" if symbol.binding == STB_WEAK else "global"


def _constant_banks(sizes: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    for name, size in sizes.items():
        bank = name.removeprefix(".nv.constant")
        if bank != name and bank.isdecimal():
            yield int(bank), size
