"""Host objects and executables: the device code inside them, and the kernel names that they use.

Source: sections and stubs as nvcc 13.5 writes them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from rglink.diagnostics import InputError
from rglink.objfmt.elf import (
    DEVICE_SECTIONS,
    HOST_MACHINES,
    MACHINES,
    MAGIC,
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHT_DYNSYM,
    SHT_SYMTAB,
    Elf,
    describe_elf,
    machine_of,
    read_elf,
)
from rglink.objfmt.input_file import open_any

DEVICE_STUB = "__device_stub_"  # nvcc's host function for a kernel: _Z<n>__device_stub_<kernel's name>...
NAME_BYTES = re.compile(rb"[A-Za-z0-9_$.]+")  # LLVM's and PTX's identifiers


@dataclass(frozen=True)
class HostObject:
    """An ELF file of a host machine. `device_code` are (section, its bytes): fat binaries, one or more each."""

    name: str
    machine: str
    device_code: tuple[tuple[str, memoryview], ...]


@dataclass(frozen=True)
class KernelNames:
    """Which candidates a file uses. `unmatched` are names in a list file that are no candidate, in file order."""

    matched: frozenset[str]
    unmatched: tuple[str, ...] = ()


def read_host_object(name: str, data: bytes | memoryview) -> HostObject:
    """Find the device code of a host object, library or executable.

    Raises:
        InputError: not a 64-bit little-endian ELF file of a host machine, or damaged.
    """
    elf = _read_host(name, data)
    return HostObject(
        name,
        MACHINES[elf.machine],
        tuple((section.name, elf.contents(section)) for section in elf.sections if section.name in DEVICE_SECTIONS),
    )


def kernel_names_of(path: str, candidates: Collection[str]) -> KernelNames:
    """The kernels among `candidates` that a file uses: a host object or executable, or a list of names.

    A list has one name a line; what follows a `#` is a comment. In a host file a name counts when it is a symbol,
    part of nvcc's launch stub, or among the read-only data that launches by name refer to. Rust keeps literals
    end to end, so a name inside a longer word counts too, unless that word is itself a candidate: rather a kernel
    too many than one missing at run time. Embedded device code does not count.

    Raises:
        InputError: the file cannot be read, is neither text nor a host ELF file, or is damaged.
    """
    data = open_any(path).data
    if data[:4] == MAGIC:
        elf = _read_host(path, data)
        return KernelNames(frozenset(_symbols_used(elf, candidates) | _words_used(elf, candidates)))
    try:
        text = bytes(data).decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InputError(f"{path}: wanted a list of kernel names, or a host object or executable (ELF)")
    listed = [line.split("#", 1)[0].strip() for line in text.splitlines()]
    known = frozenset(candidates)
    return KernelNames(
        known.intersection(listed),
        tuple(dict.fromkeys(entry for entry in listed if entry and entry not in known)),
    )


def _read_host(name: str, data: bytes | memoryview) -> Elf:
    view = memoryview(data)
    if view[:4] == MAGIC and machine_of(view) not in HOST_MACHINES:
        raise InputError(f"{name}: is {describe_elf(view)}, wanted a host object or executable")
    return read_elf(name, view)


def _symbols_used(elf: Elf, candidates: Collection[str]) -> set[str]:
    names = {symbol.name for table in (SHT_SYMTAB, SHT_DYNSYM) for symbol in elf.symbols(table)}
    stubs = [name.split(DEVICE_STUB, 1)[1] for name in names if DEVICE_STUB in name]
    return {
        candidate for candidate in candidates if candidate in names or any(stub.startswith(candidate) for stub in stubs)
    }


def _words_used(elf: Elf, candidates: Collection[str]) -> set[str]:
    """Candidates in the words of the read-only and initialised data."""
    known = {candidate.encode("utf-8", "surrogateescape"): candidate for candidate in candidates}
    words = {word for data in _host_data(elf) for word in NAME_BYTES.findall(data)}
    used = {known[word] for word in words if word in known}
    joined = b"\n".join(sorted(words - known.keys()))
    return used | {candidate for raw, candidate in known.items() if raw in joined}


def _host_data(elf: Elf) -> Iterator[bytes]:
    for section in elf.sections:
        if section.flags & SHF_ALLOC and not section.flags & SHF_EXECINSTR and section.size:
            if section.name in DEVICE_SECTIONS or section.name in (".dynstr", ".dynsym", ".eh_frame"):
                continue
            yield bytes(elf.contents(section))
