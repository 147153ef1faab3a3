"""Cubins by ptxas, read by us and by three others: cuobjdump, pyelftools and ptxas's own words."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from rglink.diagnostics import InputError
from rglink.objfmt.cubin import Cubin, CubinKernel, Parameter, read_cubin
from rglink.objfmt.elf import SHT_NOBITS, SHT_SYMTAB, read_elf

from .support import PTX, PTX_RELOCATABLE, assemble, refuses_damage, run_tool

ARCHES = ["75", "80", "90", "90a", "100", "100a", "100f", "120"]


@pytest.fixture(scope="module", params=ARCHES)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Cubin]:
    """A cubin of the sample PTX for each architecture: (path, what we read)."""
    folder = tmp_path_factory.mktemp(f"sm_{request.param}")
    data = assemble(folder, PTX, request.param)
    path = folder / f"sm_{request.param}.cubin"
    return path, read_cubin(path.name, data)


def resources(text: str) -> dict[str, dict[str, int]]:
    """What `cuobjdump -res-usage` says, by function."""
    found = re.findall(r"Function (\S+):\n\s+(.*)", text)
    return {name: {key: int(value) for key, value in re.findall(r"(\S+):(\d+)", line)} for name, line in found}


def kernel(cubin: Cubin, name: str) -> CubinKernel:
    return next(kernel for kernel in cubin.kernels if kernel.name == name)


def test_architecture_is_what_cuobjdump_says(built: tuple[Path, Cubin]) -> None:
    path, cubin = built
    (sm,) = re.findall(r"\bsm=(\w+)", run_tool("cuobjdump", "-elf", path))
    assert cubin.arch == f"sm_{sm}"
    assert not cubin.relocatable


def test_resources_are_what_cuobjdump_says(built: tuple[Path, Cubin]) -> None:
    path, cubin = built
    theirs = resources(run_tool("cuobjdump", "-res-usage", path))
    assert [k.name for k in cubin.kernels] == ["empty", "sum"]
    for ours in cubin.kernels:
        line = theirs[ours.name]
        reserved = 1024 if cubin.sm >= 90 and line["SHARED"] else 0
        assert ours.registers == line["REG"]
        assert ours.frame == line["STACK"]
        assert ours.shared == line["SHARED"] - reserved
        assert ours.constant == line["CONSTANT[0]"]


def test_what_the_source_says(built: tuple[Path, Cubin]) -> None:
    _, cubin = built
    ours = kernel(cubin, "sum")
    assert (ours.shared, ours.frame, ours.min_stack, ours.barriers) == (512, 64, 64, 1)
    assert (ours.max_threads, ours.required_threads) == ((128, 1, 1), None)
    assert ours.parameters == (Parameter(0, 0, 8), Parameter(1, 8, 16))
    assert kernel(cubin, "empty").parameters == ()
    assert kernel(cubin, "empty").max_threads is None
    found = {(v.name, v.space, v.binding, v.size) for v in cubin.variables}
    assert found == {("TABLE", "global", "global", 16), ("FACTORS", "constant", "local", 32)}
    assert dict(cubin.constant_banks)[3] == 32
    assert cubin.undefined == ()


def test_symbols_and_sections_are_what_pyelftools_reads(built: tuple[Path, Cubin]) -> None:
    path, _ = built
    data = path.read_bytes()
    ours, theirs = read_elf(path.name, data), ELFFile(io.BytesIO(data))
    sections = list(theirs.iter_sections())
    assert [s.name for s in ours.sections] == [s.name for s in sections]
    for mine, other in zip(ours.sections, sections, strict=True):
        assert (mine.size, mine.offset, mine.flags) == (other["sh_size"], other["sh_offset"], other["sh_flags"])
        assert mine.type == SHT_NOBITS or bytes(ours.contents(mine)) == other.data()
    table = theirs.get_section_by_name(".symtab")
    assert isinstance(table, SymbolTableSection)
    assert [(s.name, s.value, s.size) for s in ours.symbols(SHT_SYMTAB)] == [
        (s.name, s["st_value"], s["st_size"]) for s in table.iter_symbols()
    ]


def test_code_size_is_what_nvdisasm_lists(built: tuple[Path, Cubin]) -> None:
    path, cubin = built
    listing = run_tool("cuobjdump", "-sass", "-fun", "sum", path)
    offsets = [int(offset, 16) for offset in re.findall(r"/\*([0-9a-f]{4,})\*/\s+\S", listing)]
    assert kernel(cubin, "sum").code == max(offsets) + 16


@pytest.mark.parametrize("arch", ["75", "90a"])
def test_relocatable_cubins(arch: str, tmp_path: Path) -> None:
    cubin = read_cubin("a.o", assemble(tmp_path, PTX_RELOCATABLE, arch, "-c"))
    assert cubin.relocatable
    assert cubin.arch == f"sm_{arch}"
    assert [k.name for k in cubin.kernels] == ["caller"]
    assert [(f.name, f.binding) for f in cubin.functions] == [("twice", "global")]
    assert cubin.undefined == ("elsewhere",)
    shared = read_cubin("b.o", assemble(tmp_path, PTX, arch, "-c"))
    assert kernel(shared, "sum").shared == 512


def spilling(registers: int) -> str:
    """A kernel that holds 80 values over a barrier, and a parameter above the 16,383 bytes of the old record."""
    loads = "".join(f"ld.volatile.global.u32 %r{i},[%rd1+{4 * i}];\n" for i in range(80))
    stores = "".join(f"st.volatile.global.u32 [%rd1+{4 * (i * 7 % 80)}],%r{i};\n" for i in range(80))
    return (
        ".version 8.8\n.target sm_{arch}\n.address_size 64\n"
        ".visible .entry spill(.param .u64 p, .param .align 8 .b8 big[20000]) .reqntid 64,2,1"
        f" .maxnreg {registers} {{{{ .reg .u64 %rd<9>; .reg .u32 %r<200>; ld.param.u64 %rd1,[p];\n"
        f"{loads}bar.sync 0;\n{stores}ret; }}}}\n"
    )


@pytest.mark.parametrize("arch", ["80", "90"])
def test_spills_are_counted(arch: str, tmp_path: Path) -> None:
    (few,) = read_cubin("a", assemble(tmp_path, spilling(24), arch)).kernels
    (many,) = read_cubin("b", assemble(tmp_path, spilling(128), arch)).kernels
    assert few.spills > 50
    assert few.frame > 100
    assert (many.spills, many.frame) == (0, 0)
    assert few.required_threads == (64, 2, 1)
    assert few.parameters == (Parameter(0, 0, 8), Parameter(1, 8, 20000))


def patched(data: bytes, offset: int, value: bytes) -> bytes:
    return data[:offset] + value + data[offset + len(value) :]


def test_cubins_of_the_older_form(tmp_path: Path) -> None:
    """ABI version 7, before CUDA 13: the sm number is the low byte of e_flags, 0x800 marks sm_90a."""
    data = assemble(tmp_path, PTX, "90")
    for flags, arch in ((0x59, "sm_89"), (0x85A, "sm_90a")):
        old = patched(patched(data, 8, b"\7"), 48, flags.to_bytes(4, "little"))
        assert read_cubin("a", old).arch == arch


def test_refusals(tmp_path: Path) -> None:
    data = assemble(tmp_path, PTX, "80")
    end = int.from_bytes(data[40:48], "little") + 64 * int.from_bytes(data[60:62], "little")
    cases = {
        b"": "a: is not an ELF file",
        data[:40]: "a: ELF header is truncated: 40 bytes, wanted 64",
        data[:300]: f"a: ELF section table is truncated: it ends at {end}, the file has 300 bytes",
        patched(data, 18, b"\x3e\0"): "a: is an ELF file for machine 62, wanted a cubin (190)",
        patched(data, 8, b"\x09"): "a: cubin ABI version is 9, rglink knows 7 and 8",
        patched(data, 4, b"\x01"): "a: is an ELF executable for NVIDIA CUDA, wanted 64-bit little-endian",
    }
    for damaged, message in cases.items():
        with pytest.raises(InputError) as caught:
            read_cubin("a", damaged)
        assert str(caught.value) == message


def test_no_damage_makes_a_traceback(tmp_path: Path) -> None:
    data = assemble(tmp_path, PTX, "90a")
    assert refuses_damage(lambda changed: read_cubin("a", changed), data, 16) > 100
