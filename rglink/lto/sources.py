"""Sources: the modules that a link may take code from, with their summaries, and the archives that stay lazy."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rglink.demangle import crate_of
from rglink.diagnostics import InputError
from rglink.ir import DATA_LAYOUT, Module
from rglink.objfmt.archive import Member
from rglink.objfmt.input_file import InputFile
from rglink.objfmt.summary import ModuleSummary

Form = Literal["bitcode", "text"]


@dataclass(frozen=True)
class Source:
    """One module. `file` is the path as given, `member` its name in an archive ("" outside one).

    `lazy` says that the module came out of a lazy archive and that `summary` covers only what was asked of it.
    `sysroot` is the key of the device sysroot that an `.rgo` was compiled against, "" for anything else.
    """

    file: str
    member: str
    crate: str
    form: Form
    data: bytes | memoryview = field(repr=False)
    digest: str
    summary: ModuleSummary = field(repr=False)
    lazy: bool = False
    sysroot: str = ""

    @property
    def name(self) -> str:
        """What messages call it: "a.rgo", "libk.rlib(k.o)"."""
        return name_of(self.file, self.member)

    @property
    def key(self) -> tuple[str, str, str]:
        """Orders sources whatever the order and the folders in which they were given."""
        return sort_key(self.crate, self.file, self.member, self.digest)


@dataclass(frozen=True)
class LazyArchive:
    """An archive of which members are taken when a name is asked for. `symbols` is its map, as members' indices."""

    file: str
    crate: str
    digest: str
    members: tuple[Member, ...] = field(repr=False)
    symbols: Mapping[str, int] = field(repr=False)

    @property
    def name(self) -> str:
        return self.file

    @property
    def key(self) -> tuple[str, str, str]:
        return sort_key(self.crate, self.file, "", self.digest)

    def member_name(self, index: int) -> str:
        return name_of(self.file, self.members[index].name)


class ModulePool:
    """Modules that were parsed for their summaries, unchanged, so that the merge need not parse them again."""

    def __init__(self) -> None:
        self._modules: dict[str, Module] = {}

    def put(self, digest: str, module: Module) -> None:
        """Keep a module that nobody has changed or will."""
        self._modules[digest] = module

    def take(self, source: Source) -> Module:
        """The module of a source, for the caller to change; parsed again if it was taken before.

        Raises:
            InputError: LLVM refuses it.
        """
        found = self._modules.pop(source.digest, None)
        return found if found is not None else parse_source(source.form, source.data, source.name)


@dataclass(frozen=True)
class Inputs:
    """All that a link may take from, in an order that does not depend on the order of the command line."""

    sources: tuple[Source, ...]
    archives: tuple[LazyArchive, ...] = ()
    foreign: tuple[InputFile, ...] = ()
    pool: ModulePool = field(default_factory=ModulePool, repr=False, compare=False)


def name_of(file: str, member: str) -> str:
    """ "a.rgo", or "libk.rlib(k.o)" for a member."""
    return f"{file}({member})" if member else file


def sort_key(crate: str, file: str, member: str, digest: str) -> tuple[str, str, str]:
    """Orders modules whatever the order and the folders in which they were given."""
    return crate, member or os.path.basename(file), digest


def describe(source: Source, name: str = "") -> str:
    """A source for messages: "libk.rlib(k.o) (crate k)"; the crate is the one that `name` was written in."""
    crate = crate_of(name) or source.crate
    return f"{source.name} (crate {crate})" if crate else source.name


def parse_source(form: Form, data: bytes | memoryview, name: str) -> Module:
    """Parse one module.

    Raises:
        InputError: LLVM refuses it, or it is text in no known encoding.
    """
    if form == "bitcode":
        return Module.parse_bitcode(data, name)
    try:
        text = bytes(data).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: textual IR is not UTF-8 at byte {error.start}", slug="bad-ir") from None
    if not re.search(r"^\s*target datalayout", text, re.MULTILINE):
        # LLVM would fill in alignments of its own. In the first line, so that errors count lines as the file does.
        text = f'target datalayout = "{DATA_LAYOUT}" {text}'
    return Module.parse_text(text, name)


def crate_of_file(path: str) -> str:
    """The crate that a file name stands for: `libk-1f2e.rlib`, `k.rgo`, `k.k.1e05a7-cgu.0.rcgu.o` are all `k`."""
    name = os.path.basename(path)
    stem = name.split(".", 1)[0]
    if name.endswith((".rlib", ".a")):
        stem = stem.removeprefix("lib")
    return re.sub(r"-[0-9a-f]{16}\Z", "", stem).replace("-", "_")


def digest_of(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
