"""Load: open what the files hold, summarize it, and refuse what cannot be linked.

`.rgo` files bring their summary with them. Rust libraries other than the sysroot's, bitcode and textual IR are
parsed and summarized whole, because any of them may define kernels. The sysroot's libraries and C archives stay
unread: of each member only the names that the archive's symbol map lists are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from rglink.diagnostics import Diagnostics, InputError
from rglink.ir import LAST_RUSTC, LLVM_MAJOR, TRIPLE
from rglink.lto.sources import (
    Form,
    Inputs,
    LazyArchive,
    ModulePool,
    Source,
    crate_of_file,
    digest_of,
    name_of,
    parse_source,
    sort_key,
)
from rglink.lto.summary import summarize
from rglink.objfmt.archive import Archive, read_archive
from rglink.objfmt.bitcode import read_bitcode
from rglink.objfmt.input_file import InputFile, InputKind, describe, recognise
from rglink.objfmt.rgo import read_rgo

SYSROOT_CRATES = ("core", "alloc", "compiler_builtins")

_SYSROOT_FLAG = "--sysroot="


@dataclass(frozen=True)
class _Piece:
    """A module not yet parsed."""

    file: str
    member: str
    crate: str
    form: Form
    data: bytes | memoryview
    digest: str

    @property
    def name(self) -> str:
        return name_of(self.file, self.member)

    @property
    def key(self) -> tuple[str, str, str]:
        return sort_key(self.crate, self.file, self.member, self.digest)


def load_sources(files: Sequence[InputFile], diags: Diagnostics) -> Inputs:
    """Read all files that hold LLVM IR; those of other kinds come back in `Inputs.foreign`.

    Damaged and unsuitable modules are reported, each by name, and left out; reading goes on. A module, library or
    archive that is there twice counts once, with the note `duplicate-member`.
    """
    rgos: list[Source] = []
    pieces: list[_Piece] = []
    archives: list[LazyArchive] = []
    foreign: list[InputFile] = []
    for file in files:
        try:
            if file.kind == InputKind.RGO:
                rgos.append(_read_rgo(file))
            elif file.kind == InputKind.ARCHIVE:
                _read_archive(file, pieces, archives, foreign)
            elif file.kind in (InputKind.BITCODE, InputKind.TEXTUAL_IR):
                form: Form = "bitcode" if file.kind == InputKind.BITCODE else "text"
                pieces.append(_Piece(file.path, "", crate_of_file(file.path), form, file.data, digest_of(file.data)))
            else:
                foreign.append(file)
        except InputError as error:
            diags.extend([error.diagnostic])
    pool = ModulePool()
    parsed = _parse_all(_folded(pieces, diags), pool, diags)
    sources = sorted([*parsed, *_folded(rgos, diags)], key=lambda source: source.key)
    return Inputs(tuple(sources), tuple(_folded(archives, diags)), tuple(foreign), pool)


def _read_rgo(file: InputFile) -> Source:
    reader = read_rgo(file.path, file.data)
    data = reader.optimized()
    producer = reader.producer()
    digest = digest_of(data)
    sysroot = next((flag.removeprefix(_SYSROOT_FLAG) for flag in producer.flags if flag.startswith(_SYSROOT_FLAG)), "")
    return Source(file.path, "", producer.crate_name, "bitcode", data, digest, reader.summary(), sysroot=sysroot)


def _read_archive(file: InputFile, pieces: list[_Piece], archives: list[LazyArchive], foreign: list[InputFile]) -> None:
    archive = read_archive(file.path, file.data)
    crate = crate_of_file(file.path)
    if archive.metadata is not None and crate in SYSROOT_CRATES:
        archives.append(_lazy(archive, crate))
        return
    kinds = {member.name: recognise(member.data) for member in archive.members}
    if InputKind.HOST_OBJECT in kinds.values():
        foreign.append(file)
        return
    for member in archive.members:
        if kinds[member.name] != InputKind.BITCODE:
            found = describe(InputFile(member.name, kinds[member.name], member.data))
            raise InputError(
                f"{file.path}({member.name}): is {found}, wanted bitcode for {TRIPLE}", slug="wrong-target"
            )
    if archive.metadata is None:
        archives.append(_lazy(archive, crate))
        return
    pieces += [
        _Piece(file.path, member.name, crate, "bitcode", member.data, digest_of(member.data))
        for member in archive.members
    ]


def _lazy(archive: Archive, crate: str) -> LazyArchive:
    """An archive by its symbol map. One member speaks for the target of all.

    Raises:
        InputError: it has members but no symbol map, or they are for another target or of a newer LLVM.
    """
    if archive.symbols is None and archive.members:
        raise InputError(f"{archive.name}: archive has no symbol map, wanted one", cure=f"llvm-ranlib {archive.name}")
    if archive.members:
        check_bitcode(name_of(archive.name, archive.members[0].name), archive.members[0].data)
    number = {member.offset: index for index, member in enumerate(archive.members)}
    symbols = {
        name: number[member.offset] for name, member in (archive.symbols or {}).items() if member.offset in number
    }
    digest = digest_of(b"".join(member.data for member in archive.members))
    return LazyArchive(archive.name, crate, digest, archive.members, symbols)


_Thing = TypeVar("_Thing", _Piece, Source, LazyArchive)


def _folded(things: Sequence[_Thing], diags: Diagnostics) -> list[_Thing]:
    """Sorted by key, each content once."""
    found: dict[str, _Thing] = {}
    for thing in sorted(things, key=lambda thing: (thing.key, thing.name)):
        first = found.setdefault(thing.digest, thing)
        if first is not thing:
            same = "given twice" if thing.name == first.name else f"the same as {first.name}"
            diags.report("duplicate-member", f"{thing.name}: {same}, counted once")
    return list(found.values())


def _parse_all(pieces: Sequence[_Piece], pool: ModulePool, diags: Diagnostics) -> list[Source]:
    """Parse and summarize in the order given: LLVM numbers colliding type names in the order it reads them."""
    sources: list[Source] = []
    for piece in pieces:
        try:
            sources.append(_parse(piece, pool))
        except InputError as error:
            diags.extend([error.diagnostic])
    return sources


def _parse(piece: _Piece, pool: ModulePool) -> Source:
    if piece.form == "bitcode":
        check_bitcode(piece.name, piece.data)
    module = parse_source(piece.form, piece.data, piece.name)
    if module.triple != TRIPLE:
        raise _wrong_target(piece.name, module.triple)
    pool.put(piece.digest, module)
    return Source(piece.file, piece.member, piece.crate, piece.form, piece.data, piece.digest, summarize(module))


def check_bitcode(name: str, data: bytes | memoryview) -> None:
    """Refuse bitcode that is for another target or that our LLVM cannot read, without parsing it.

    Raises:
        InputError: naming the file, what it is and what was wanted.
    """
    info = read_bitcode(name, data)
    if info.llvm and info.llvm[0] > LLVM_MAJOR:
        version = ".".join(map(str, info.llvm))
        cure = f"compile with rustc {LAST_RUSTC} or older, whose LLVM is {LLVM_MAJOR}"
        message = f"{name}: bitcode of LLVM {version}, wanted LLVM {LLVM_MAJOR} or older"
        raise InputError(message, slug="newer-llvm", cure=cure)
    if info.modules != 1:
        raise InputError(f"{name}: bitcode holds {info.modules} modules, wanted one")
    if info.triple != TRIPLE:
        raise _wrong_target(name, info.triple)


def _wrong_target(name: str, triple: str) -> InputError:
    found = f"is for {triple}" if triple else "names no target"
    cure = f"compile it with --target {TRIPLE}"
    return InputError(f"{name}: {found}, wanted {TRIPLE}", slug="wrong-target", cure=cure)
