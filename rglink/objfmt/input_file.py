"""Input files: opened, mapped and recognised by what is in them, never by their names."""

from __future__ import annotations

import errno
import mmap
import os
import re
import stat
from dataclasses import dataclass
from enum import StrEnum

from rglink.diagnostics import InputError
from rglink.objfmt import archive, bitcode, elf, fatbin, ltoir, rgo
from rglink.objfmt.response_file import expand_response_files as expand_response_files

RUST_METADATA_MAGIC = b"rust\0\0\0"
# Files up to this are read: a mapping costs more, and a mapped file that shrinks while we read kills the process.
LARGEST_READ = 1 << 20
# What is looked at to tell text from bytes, and IR from PTX: enough for any leading comment.
TEXT_HEAD = 1 << 16


class InputKind(StrEnum):
    """What a file is. Those of `LINKABLE` are link inputs; the others exist to be named in an error."""

    RGO = "rgo"
    ARCHIVE = "archive"
    BITCODE = "bitcode"
    TEXTUAL_IR = "textual_ir"
    PTX = "ptx"
    CUBIN = "cubin"
    FATBIN = "fatbin"
    LTOIR = "ltoir"
    HOST_OBJECT = "host_object"  # ELF of a host machine with device code inside
    ELF = "elf"  # any other ELF
    THIN_ARCHIVE = "thin_archive"
    RUST_METADATA = "rust_metadata"
    TEXT = "text"
    UNKNOWN = "unknown"


LINKABLE = frozenset(
    (
        InputKind.RGO,
        InputKind.ARCHIVE,
        InputKind.BITCODE,
        InputKind.TEXTUAL_IR,
        InputKind.PTX,
        InputKind.CUBIN,
        InputKind.FATBIN,
        InputKind.LTOIR,
        InputKind.HOST_OBJECT,
    )
)
WORDS = {
    InputKind.RGO: "an .rgo",
    InputKind.ARCHIVE: "an archive",
    InputKind.BITCODE: "LLVM bitcode",
    InputKind.TEXTUAL_IR: "textual LLVM IR",
    InputKind.PTX: "PTX",
    InputKind.CUBIN: "a cubin",
    InputKind.FATBIN: "a fat binary",
    InputKind.LTOIR: "LTO-IR",
    InputKind.THIN_ARCHIVE: "a thin archive, which holds names of files and no code",
    InputKind.RUST_METADATA: "Rust metadata without code (.rmeta)",
    InputKind.TEXT: "a text file",
}
# What a name may promise; only for messages.
SUFFIXES = frozenset((".rgo", ".rlib", ".a", ".o", ".bc", ".ll", ".ltoir", ".ptx", ".cubin", ".fatbin"))
WANTED = (
    "wanted an .rgo, an rlib or other archive, LLVM bitcode or textual IR, PTX, LTO-IR, a cubin, a fat binary"
    " or a host object with device code"
)

MAGICS: tuple[tuple[bytes, InputKind], ...] = (
    (rgo.MAGIC, InputKind.RGO),
    (archive.MAGIC, InputKind.ARCHIVE),
    (archive.THIN_MAGIC, InputKind.THIN_ARCHIVE),
    (bitcode.MAGIC, InputKind.BITCODE),
    (bitcode.WRAPPER_MAGIC, InputKind.BITCODE),
    (fatbin.MAGIC.to_bytes(4, "little"), InputKind.FATBIN),
    (ltoir.MAGIC, InputKind.LTOIR),
    (RUST_METADATA_MAGIC, InputKind.RUST_METADATA),
)
# Files that people name by mistake, for the message alone.
FOREIGN_MAGICS: tuple[tuple[bytes, str], ...] = (
    (b"\x93RGO", "an .rgo whose first bytes were changed, as by a copy in text mode"),
    (b"MZ", "a Windows executable or library (PE)"),
    (b"\x64\x86", "a Windows object for x86-64 (COFF)"),
    (b"\x4c\x01", "a Windows object for x86 (COFF)"),
    (b"\xcf\xfa\xed\xfe", "a Mach-O file"),
    (b"\xce\xfa\xed\xfe", "a Mach-O file"),
    (b"\xca\xfe\xba\xbe", "a universal Mach-O file or a Java class"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"\xfd7zXZ\0", "an xz file"),
    (b"BZh", "a bzip2 file"),
    (b"PK\x03\x04", "a zip file"),
    (b"\x03\x02\x23\x07", "a SPIR-V module"),
    (b"\0asm", "a WebAssembly module"),
)
# The first line that is not a comment: LangRef's top-level entities; the PTX ISA has `.version` come first.
IR_START = re.compile(
    r"""source_filename\s*=|target\s+(?:triple|datalayout)\s*=|module\s+asm\s*"|(?:define|declare)\s|attributes\s+\#
    |@(?:[\w$.-]+|"[^"\n]*")\s*=|%(?:[\w$.-]+|"[^"\n]*")\s*=\s*type\b|\$(?:[\w$.-]+|"[^"\n]*")\s*=\s*comdat\b
    |![\w.]+\s*=|!\d+\s*=|\^\d+\s*=""",
    re.VERBOSE,
)
PTX_START = re.compile(r"\.version\s")
IR_COMMENTS = re.compile(r"(?:\s+|;[^\n]*(?:\n|\Z))*")
PTX_COMMENTS = re.compile(r"(?:\s+|//[^\n]*(?:\n|\Z)|/\*.*?\*/)*", re.DOTALL)


@dataclass(frozen=True)
class InputFile:
    """One file as the user named it: its kind and its bytes, mapped where it is large."""

    path: str
    kind: InputKind
    data: memoryview


def recognise(data: bytes | memoryview) -> InputKind:
    """What `data`, a whole file, is by its content; UNKNOWN when it is empty or nothing known."""
    view = memoryview(data)
    head = bytes(view[:16])
    for magic, kind in MAGICS:
        if head.startswith(magic):
            return kind
    if head.startswith(elf.MAGIC):
        machine = elf.machine_of(view)
        if machine == elf.EM_CUDA:
            return InputKind.CUBIN
        host = machine in elf.HOST_MACHINES and elf.has_device_code(view)
        return InputKind.HOST_OBJECT if host else InputKind.ELF
    if any(head.startswith(magic) for magic, _ in FOREIGN_MAGICS):
        return InputKind.UNKNOWN
    return _recognise_text(bytes(view[:TEXT_HEAD]))


def open_input(path: str) -> InputFile:
    """Open a link input.

    Raises:
        InputError: there is no such file, it cannot be read, is a folder, is empty, or is no kind of link input.
    """
    file = open_any(path)
    if file.kind not in LINKABLE:
        suffix = os.path.splitext(path)[1]
        name = f", not {_article(suffix)} {suffix}" if suffix in SUFFIXES else ""
        raise InputError(f"{path}: is {describe(file)}{name}: {WANTED}")
    return file


def open_any(path: str) -> InputFile:
    """Open a file of whatever kind.

    Raises:
        InputError: there is no such file, it cannot be read, is a folder or no regular file, or is empty.
    """
    try:
        data = _read(path)
    except OSError as error:
        raise InputError(f"{path}: {_reason(error)}") from None
    return InputFile(path, recognise(data), data)


def describe(file: InputFile) -> str:
    """What a file is, in words that follow "is": "a text file", "an ELF host object for x86-64"."""
    if file.kind in (InputKind.ELF, InputKind.HOST_OBJECT):
        return describe_host(file.data, file.kind)
    if file.kind in WORDS:
        return WORDS[file.kind]
    head = bytes(file.data[:16])
    for magic, words in FOREIGN_MAGICS:
        if head.startswith(magic):
            return words
    return f"of an unknown kind (it begins with {head[:4].hex(' ')})" if head else "empty"


def describe_host(data: memoryview, kind: InputKind) -> str:
    """An ELF file, with whether it has device code where it could have some."""
    words = elf.describe_elf(data)
    if elf.machine_of(data) not in elf.HOST_MACHINES:
        return words
    return f"{words} {'with' if kind is InputKind.HOST_OBJECT else 'without'} device code"


def _read(path: str) -> memoryview:
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise InputError(f"{path}: is not a regular file")  # opening a pipe would wait for its writer
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            raise InputError(f"{path}: is empty")
        if size <= LARGEST_READ:
            return memoryview(file.read())
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _reason(error: OSError) -> str:
    if error.errno == errno.EISDIR:
        return "is a folder, wanted a file"
    if error.errno == errno.ENOENT:
        return "no such file"
    return f"cannot be read: {(error.strerror or str(error)).lower()}"


def _article(suffix: str) -> str:
    # As the letters are read: "an .rgo", "an .o", "a .bc".
    return "an" if suffix[1:2] in "aefhilmnorsx" else "a"


def _recognise_text(head: bytes) -> InputKind:
    """Text is UTF-8 without control characters; libNVVM ends its PTX in a NUL."""
    trimmed = head.rstrip(b"\0")
    if not trimmed or re.search(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]", trimmed):
        return InputKind.UNKNOWN
    try:
        text = trimmed.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if len(head) < TEXT_HEAD or error.start < len(trimmed) - 3:
            return InputKind.UNKNOWN
        text = trimmed[: error.start].decode("utf-8-sig")  # a character cut by the end of the head
    comments = IR_COMMENTS.match(text)
    start = comments.end() if comments else 0
    if IR_START.match(text, start) or (start == len(text) and text.lstrip().startswith("; ModuleID")):
        return InputKind.TEXTUAL_IR
    comments = PTX_COMMENTS.match(text)
    if PTX_START.match(text, comments.end() if comments else 0):
        return InputKind.PTX
    return InputKind.TEXT
