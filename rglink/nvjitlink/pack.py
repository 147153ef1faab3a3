"""Door to nvFatbin: cubins and PTX into one compressed fat binary, listed again afterwards."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rglink import worker
from rglink.diagnostics import ToolError
from rglink.nvjitlink.job import CodegenResult
from rglink.nvjitlink.libraries import load
from rglink.objfmt.fatbin import FatEntry, read_fatbin

# Cubins are not compressed by default; `-compress-all` made six entries 3.6 times smaller.
_OPTIONS = ["-64", "-compress-all"]
_COMMENT_OR_STRING = re.compile(rb'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_KINDS = {"cubin": "elf", "ptx": "ptx"}


def pack_fatbin(results: Sequence[CodegenResult], name: str = "the fat binary") -> bytes:
    """One fat binary of all images, in order of architecture, cubin before PTX.

    `name` is what errors call it; the entries get no identifier, so that equal programs are equal bytes.

    Raises:
        ToolError: nvFatbin failed, or what it packed is not what went in.
    """
    ordered = sorted(results, key=lambda result: result.target.sort_key)
    load("nvfatbin")  # here, once, rather than in the child
    data = worker.run_supervised(f"{name}: nvFatbin", lambda: _pack(name, ordered))
    _compare(name, ordered, read_fatbin(name, data))
    return data


def _pack(name: str, results: Sequence[CodegenResult]) -> bytes:
    library = load("nvfatbin")
    session = library.create(_OPTIONS, len(_OPTIONS))
    try:
        for result in results:
            _add(library, session, result)
        buffer = bytearray(library.size(session))
        library.get(session, buffer)
    except library.nvFatbinError as error:
        raise ToolError(f"{name}: nvFatbin: {error}", slug="nvfatbin") from None
    finally:
        library.destroy(session)
    return bytes(buffer)


def _add(library: Any, session: int, result: CodegenResult) -> None:
    label = result.target.arch.label  # bare: "90a"; nvFatbin takes any label, so the proof checks it before
    if result.target.kind == "cubin":
        library.add_cubin(session, result.image, len(result.image), label, "")
    else:
        library.add_ptx(session, result.image, len(result.image), label, "", "")


def _compare(name: str, results: Sequence[CodegenResult], entries: Sequence[FatEntry]) -> None:
    wanted = [(_KINDS[result.target.kind], result.target.arch.label) for result in results]
    found = [(entry.kind, f"{entry.sm}{entry.suffix}") for entry in entries]
    if found != wanted:
        raise ToolError(
            f"{name}: nvFatbin packed other entries than it was given",
            f"given: {_list(wanted)}",
            f"found: {_list(found)}",
            slug="proof-failed",
        )
    for result, entry in zip(results, entries, strict=True):
        if _text(result, entry.payload()) != _text(result, result.image):
            raise ToolError(f"{name}: nvFatbin changed the {entry.kind} of {entry.arch}", slug="proof-failed")


def _text(result: CodegenResult, image: bytes) -> bytes | list[bytes]:
    """What must be equal: a cubin's bytes; PTX without comments and spaces, which nvFatbin takes out."""
    if result.target.kind == "cubin":
        return image
    return _COMMENT_OR_STRING.sub(lambda match: match[1] or b" ", image.rstrip(b"\0")).split()


def _list(entries: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{kind} {label}" for kind, label in entries)
