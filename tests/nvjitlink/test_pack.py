"""A fat binary holds what went in, in one order, and a second opinion agrees."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from rglink.diagnostics import ToolError
from rglink.nvjitlink import pack
from rglink.nvjitlink.job import CodegenResult
from rglink.nvjitlink.pack import pack_fatbin
from rglink.objfmt.fatbin import read_fatbin

from .support import jobs, run, tool

PROGRAM = "define ptx_kernel void @k(ptr %p) {\n  store i32 1, ptr %p\n  ret void\n}\n"
# What looks like a comment, and a string.
ODD = PROGRAM.replace(
    "  store", '  call void asm sideeffect "// not code\\0A .pragma \\22nounroll\\22;", ""()\n  store'
)


def test_entries_are_listed_as_they_went_in(tmp_path: Path) -> None:
    results = run(jobs(PROGRAM, "sm_75,sm_90a,sm_100,sm_100f,sm_120,compute_75,compute_100f,compute_120", "llvm"))
    data = pack_fatbin(results)
    assert data == pack_fatbin(results[::-1])
    entries = read_fatbin("a.fatbin", data)
    assert [(entry.kind, entry.arch) for entry in entries] == [
        ("elf", "sm_75"),
        ("ptx", "compute_75"),
        ("elf", "sm_90a"),
        ("elf", "sm_100"),
        ("elf", "sm_100f"),
        ("ptx", "compute_100f"),
        ("elf", "sm_120"),
        ("ptx", "compute_120"),
    ]
    assert {entry.compression for entry in entries} == {"zstd"}
    path = tmp_path / "a.fatbin"
    path.write_bytes(data)
    listed = re.findall(r"\.(sm_\w+)\.(cubin|ptx)$", tool("cuobjdump", "-lelf", "-lptx", path), re.MULTILINE)
    assert sorted(listed) == sorted(
        [(f"sm_{n}", "cubin") for n in ("75", "90a", "100", "100", "120")]
        + [(f"sm_{n}", "ptx") for n in ("75", "100f", "120")]
    )


@pytest.mark.parametrize("ir", [PROGRAM, ODD])
def test_ptx_is_the_same_apart_from_comments(ir: str) -> None:
    results = run(jobs(ir, "compute_90", "llvm"))
    assert pack_fatbin(results)


def test_a_changed_image_is_noticed() -> None:
    results = run(jobs(PROGRAM, "sm_90,compute_90", "llvm"))
    entries = read_fatbin("a.fatbin", pack_fatbin(results))
    results.sort(key=lambda result: result.target.sort_key)
    for position, (kind, old) in enumerate((("elf of sm_90", b"k"), ("ptx of compute_90", b"entry k"))):
        changed: list[CodegenResult] = list(results)
        image = results[position].image
        changed[position] = replace(results[position], image=image.replace(old, old[:-1] + b"q", 1))
        with pytest.raises(ToolError, match=f"a.fatbin: nvFatbin changed the {kind}"):
            pack._compare("a.fatbin", changed, entries)
    with pytest.raises(ToolError, match="packed other entries than it was given") as caught:
        pack._compare("a.fatbin", results[:1], entries)
    assert caught.value.diagnostic.places == ("given: elf 90", "found: elf 90, ptx 90")


def test_what_nvfatbin_refuses_is_an_error() -> None:
    (result,) = run(jobs(PROGRAM, "sm_90", "llvm"))
    with pytest.raises(ToolError, match=r"x\.fatbin: nvFatbin"):
        pack_fatbin([replace(result, image=b"not an ELF file")], "x.fatbin")
