"""Builders for these tests: modules from textual IR, archives from real bitcode, and a link as far as the merge."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rglink.diagnostics import Diagnostics
from rglink.ir import TRIPLE, Module
from rglink.lto.load import load_sources
from rglink.lto.merge import merge_modules
from rglink.lto.resolve import Resolution, resolve_symbols
from rglink.lto.roots import RootRequest, choose_roots
from rglink.lto.sources import Inputs
from rglink.objfmt.input_file import InputFile, InputKind

HEAD = f'target triple = "{TRIPLE}"\n'


def ll(name: str, text: str) -> InputFile:
    """A textual IR input for the device."""
    return InputFile(name, InputKind.TEXTUAL_IR, memoryview((HEAD + text).encode()))


def bc(name: str, text: str) -> InputFile:
    """The same as bitcode."""
    return InputFile(name, InputKind.BITCODE, memoryview(bitcode(text)))


def bitcode(text: str) -> bytes:
    return Module.parse_text(HEAD + text, "test").bitcode()


def archive(folder: Path, name: str, members: Mapping[str, str | bytes], metadata: bool = False) -> InputFile:
    """An archive made by LLVM's own archiver from members' IR or bytes; `metadata` makes it look like an rlib."""
    folder.mkdir(exist_ok=True)
    files: list[str] = []
    for member, content in members.items():
        (folder / member).write_bytes(content if isinstance(content, bytes) else bitcode(content))
        files.append(member)
    if metadata:
        (folder / "lib.rmeta").write_bytes(b"rust\0\0\0\x09")
        files.append("lib.rmeta")
    subprocess.run(["llvm-ar-22", "rcs", name, *files], cwd=folder, check=True)
    return InputFile(name, InputKind.ARCHIVE, memoryview((folder / name).read_bytes()))


@dataclass(frozen=True)
class Outcome:
    """A link up to the merge."""

    inputs: Inputs
    resolution: Resolution
    module: Module
    diags: Diagnostics

    def defined(self) -> dict[str, str]:
        """Linkage by name of all that the merged module defines."""
        return {found.name: found.linkage for found in self.module.globals() if not found.is_declaration}


def merged(*files: InputFile, request: RootRequest | None = None) -> Outcome:
    """Load, resolve and merge; errors are in the outcome's `diags`."""
    inputs, resolution, diags = resolved(*files, request=request)
    return Outcome(inputs, resolution, merge_modules(resolution, inputs, diags), diags)


def resolved(*files: InputFile, request: RootRequest | None = None) -> tuple[Inputs, Resolution, Diagnostics]:
    diags = Diagnostics()
    inputs = load_sources(files, diags)
    roots = choose_roots(inputs, request or RootRequest(), diags)
    return inputs, resolve_symbols(inputs, roots, diags), diags


def rendered(diags: Diagnostics) -> list[str]:
    """Every message as a user reads it."""
    return [item.render() for item in diags.items]


def lines(*parts: str) -> str:
    return "\n".join(parts)
