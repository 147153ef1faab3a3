"""Files to loaded programs: PTX text, or the PTX in a fat binary."""

from __future__ import annotations

import os
from pathlib import Path
from typing import overload

from rglink.diagnostics import InputError
from rglink.emulate.checked import CheckedProgram
from rglink.emulate.checks import Checks
from rglink.emulate.launch import LoadedProgram
from rglink.emulate.parser import parse_ptx
from rglink.emulate.ptx import Program
from rglink.objfmt import fatbin

EVERYTHING = Checks()


@overload
def load(
    source: str | os.PathLike[str] | bytes, *, name: str = "", arch: str = "", checks: Checks = EVERYTHING
) -> CheckedProgram: ...


@overload
def load(source: str | os.PathLike[str] | bytes, *, name: str = "", arch: str = "", checks: None) -> LoadedProgram: ...


def load(
    source: str | os.PathLike[str] | bytes, *, name: str = "", arch: str = "", checks: Checks | None = EVERYTHING
) -> LoadedProgram:
    """Load a `.ptx` or `.fatbin` file, or the bytes of one.

    `name` stands for the file in messages if `source` is bytes. `arch` ("compute_90") picks one of several PTX images
    in a fat binary; the newest is taken otherwise. Launches raise `CheckFailed` where one of `checks` has something to
    report; None gives the bare machine, which is about three times as fast.

    Raises:
        InputError: not PTX, damaged, or a fat binary without PTX for `arch`.
        OSError: the file cannot be read.
    """
    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    name = name or ("program" if isinstance(source, bytes) else os.path.basename(source))
    program = read_ptx(data, name, arch)
    return LoadedProgram(program) if checks is None else CheckedProgram(program, checks)


def read_ptx(data: bytes, name: str, arch: str) -> Program:
    """The program of PTX text, or of a fat binary's PTX for `arch` ("" for the newest).

    Raises:
        InputError: as `load` says.
    """
    if data[:4] == fatbin.MAGIC.to_bytes(4, "little"):
        name, data = _from_fatbin(name, data, arch)
    elif data[:4] == b"\x7fELF":
        raise InputError(f"{name}: is a cubin or object file, wanted PTX: machine code is not emulated")
    return parse_ptx(name, data)


def _from_fatbin(name: str, data: bytes, arch: str) -> tuple[str, bytes]:
    entries = fatbin.read_fatbin(name, data)
    images = [entry for entry in entries if entry.kind == "ptx" and arch in ("", entry.arch)]
    if images:
        newest = max(images, key=lambda entry: (entry.sm, entry.suffix))
        return f"{name}({newest.arch})", newest.payload()
    newest_sm = max((entry.sm for entry in entries if entry.kind == "elf"), default=75)
    held = ", ".join(entry.arch for entry in entries) or "nothing"
    wanted = f"PTX for {arch}" if arch else "PTX"
    raise InputError(
        f"{name}: holds no {wanted}, only {held}",
        slug="no-ptx",
        cure=f"link it with `--arch {arch or f'compute_{newest_sm}'}` as well",
    )
