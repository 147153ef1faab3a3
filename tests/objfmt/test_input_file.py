"""What a file is, told by its content alone, and the words for what is no input."""

from __future__ import annotations

import os
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from rglink.diagnostics import InputError
from rglink.objfmt.input_file import (
    LARGEST_READ,
    LINKABLE,
    WANTED,
    InputFile,
    InputKind,
    describe,
    open_any,
    open_input,
    recognise,
)
from rglink.objfmt.rgo import MAGIC, write_rgo

from .support import MODULE, PTX, assemble, bitcode, gnu_archive, sample_rgo

WRAPPER = b"\xde\xc0\x17\x0b"
FATBIN = b"\x50\xed\x55\xba\1\0\x10\0" + bytes(8)


def host_object(triple: str, section: str = ".rodata") -> bytes:
    """An ELF object by LLVM with one constant in the given section."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(f'@data = constant [8 x i8] c"device\\00\\00", section "{section}"')
    machine = llvm.Target.from_triple(triple).create_target_machine()
    emitted: bytes = machine.emit_object(module)
    return emitted


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (write_rgo(sample_rgo()), InputKind.RGO),
        (gnu_archive([("a.o", b"x")]), InputKind.ARCHIVE),
        (b"!<thin>\n", InputKind.THIN_ARCHIVE),
        (bitcode(), InputKind.BITCODE),
        (WRAPPER + bytes(16), InputKind.BITCODE),
        (FATBIN, InputKind.FATBIN),
        (b"\xedCN\x7f" + bytes(24), InputKind.LTOIR),
        (b"rust\0\0\0\x0a....", InputKind.RUST_METADATA),
        (host_object("x86_64-unknown-linux-gnu"), InputKind.ELF),
        (host_object("aarch64-unknown-linux-gnu", ".nv_fatbin"), InputKind.HOST_OBJECT),
        (host_object("x86_64-unknown-linux-gnu", "__nv_relfatbin"), InputKind.HOST_OBJECT),
        (b"\x7fELF", InputKind.ELF),
        (PTX.format(arch=80).encode(), InputKind.PTX),
        (b"\n// a\n/* b\n*/ // c\n.version 7.0\n.target sm_80\n\0", InputKind.PTX),
        (MODULE.format(triple="x").encode(), InputKind.TEXTUAL_IR),
        (b"; ModuleID = 'empty'\n", InputKind.TEXTUAL_IR),
        (b"; note\n\ndefine void @f() { ret void }", InputKind.TEXTUAL_IR),
        (b'@"odd name" = global i32 0', InputKind.TEXTUAL_IR),
        (b"%S = type { i32 }", InputKind.TEXTUAL_IR),
        (b"$c = comdat any", InputKind.TEXTUAL_IR),
        (b"!llvm.ident = !{!0}", InputKind.TEXTUAL_IR),
        (b"\xef\xbb\xbfdeclare void @f()", InputKind.TEXTUAL_IR),
        (b"; " + "é".encode() * 40_000 + b"\ndeclare void @f()", InputKind.TEXT),
        (b"fn main() {}", InputKind.TEXT),
        (b"@echo off", InputKind.TEXT),
        (b".visible .entry k() { ret; }", InputKind.TEXT),
        (b"; a comment", InputKind.TEXT),
        (b"\xff\xfe\0", InputKind.UNKNOWN),
        (b"\xe9 latin", InputKind.UNKNOWN),
        (b"\x1f\x8b\x08", InputKind.UNKNOWN),
        (b"", InputKind.UNKNOWN),
    ],
)
def test_kinds(data: bytes, kind: InputKind, tmp_path: Path) -> None:
    assert recognise(data) is kind
    if not data:
        return
    path = tmp_path / "wrong.rgo"  # the name never counts
    path.write_bytes(data)
    assert open_any(str(path)).kind is kind
    if kind in LINKABLE:
        assert bytes(open_input(str(path)).data) == data


def test_cubins(tmp_path: Path) -> None:
    assert recognise(assemble(tmp_path, PTX, "80")) is InputKind.CUBIN
    assert recognise(assemble(tmp_path, PTX, "90a", "-c")) is InputKind.CUBIN


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        open_input(str(path))
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.rgo", b"hello", f"is a text file, not an .rgo: {WANTED}"),
        ("a.bc", b"hello", f"is a text file, not a .bc: {WANTED}"),
        ("a.txt", b"hello", f"is a text file: {WANTED}"),
        (
            "a.rgo",
            host_object("x86_64-unknown-linux-gnu"),
            f"is an ELF host object for x86-64 without device code, not an .rgo: {WANTED}",
        ),
        (
            "a.o",
            host_object("aarch64-unknown-linux-gnu"),
            f"is an ELF host object for AArch64 without device code, not an .o: {WANTED}",
        ),
        ("a", b"\x7fELF\2\1\1" + bytes(9) + b"\1\0\xe0\0", f"is an ELF object for AMD GPU: {WANTED}"),
        ("a", b"\x7fELF\2\1\1", f"is a truncated ELF file: {WANTED}"),
        ("a.a", b"!<thin>\n", f"is a thin archive, which holds names of files and no code, not an .a: {WANTED}"),
        ("a", b"rust\0\0\0\x0a", f"is Rust metadata without code (.rmeta): {WANTED}"),
        ("a", b"MZ\x90", f"is a Windows executable or library (PE): {WANTED}"),
        ("a", b"\xcf\xfa\xed\xfe", f"is a Mach-O file: {WANTED}"),
        ("a", b"\x1f\x8b\x08", f"is a gzip file: {WANTED}"),
        (
            "a.rgo",
            MAGIC[:4] + b"\n\x1a\n",
            f"is an .rgo whose first bytes were changed, as by a copy in text mode, not an .rgo: {WANTED}",
        ),
        ("a", b"\0\1\2\3\4", f"is of an unknown kind (it begins with 00 01 02 03): {WANTED}"),
        ("a", b"", "is empty"),
    ],
)
def test_what_is_no_input_is_described(name: str, data: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    assert refusal(path) == words


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (bitcode(), "LLVM bitcode"),
        (FATBIN, "a fat binary"),
        (host_object("x86_64-unknown-linux-gnu", ".nv_fatbin"), "an ELF host object for x86-64 with device code"),
        (b"", "empty"),
    ],
)
def test_inputs_are_described_too(data: bytes, words: str) -> None:
    """An archive's member may be any of them where another is wanted."""
    assert describe(InputFile("a(b)", recognise(data), memoryview(data))) == words


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    assert refusal(tmp_path) == "is a folder, wanted a file"
    assert refusal(tmp_path / "none.rgo") == "no such file"
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe") == "is not a regular file"
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert refusal(tmp_path / "loop") == "cannot be read: too many levels of symbolic links"
    (tmp_path / "file").write_bytes(b"x")
    assert refusal(tmp_path / "file" / "below") == "cannot be read: not a directory"


def test_unreadable_files(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"x")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("runs as root, who may read everything")
    assert refusal(path) == "cannot be read: permission denied"


def test_large_files_are_mapped(tmp_path: Path) -> None:
    path = tmp_path / "big.a"
    with path.open("wb") as file:
        file.write(b"!<arch>\n")
        file.truncate(LARGEST_READ + 1)
    assert type(open_input(str(path)).data.obj).__name__ == "mmap"
    path.write_bytes(b"!<arch>\n")
    assert isinstance(open_input(str(path)).data.obj, bytes)
