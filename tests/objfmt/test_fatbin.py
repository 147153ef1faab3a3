"""Fat binaries by nvFatbin and fatbinary: every entry, its label, and its image byte for byte."""

from __future__ import annotations

import re
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from cuda.bindings import nvfatbin, nvvm

from rglink.diagnostics import InputError
from rglink.objfmt.fatbin import ENTRY, HEADER, read_fatbin
from rglink.objfmt.ltoir import read_ltoir

from .support import PTX, assemble, refuses_damage, run_tool

NVVM_IR = """\
target triple = "nvptx64-nvidia-cuda"
target datalayout = "e-p:64:64:64-p3:32:32:32-p4:32:32:32-p5:32:32:32-p6:32:32:32-p7:32:32:32-i1:8:8-i8:8:8-i16:16:16\
-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-f128:128:128-v16:16:16-v32:32:32-v64:64:64-v128:128:128\
-n16:32:64-a:8:8"
define ptx_kernel void @k(ptr %p) { store i32 1, ptr %p
  ret void }
@llvm.used = appending global [1 x ptr] [ptr @k], section "llvm.metadata"
!nvvmir.version = !{!0}
!0 = !{i32 2, i32 0, i32 3, i32 2}
"""


def pack(options: list[str], *images: tuple[str, bytes, str, str]) -> bytes:
    """A fat binary by nvFatbin from (kind, bytes, label, identifier)."""
    handle = nvfatbin.create(options, len(options))
    for kind, data, label, identifier in images:
        if kind == "cubin":
            nvfatbin.add_cubin(handle, data, len(data), label, identifier)
        elif kind == "ptx":
            nvfatbin.add_ptx(handle, data, len(data), label, identifier, "")
        else:
            nvfatbin.add_ltoir(handle, data, len(data), label, identifier, "")
    packed = bytearray(nvfatbin.size(handle))
    nvfatbin.get(handle, packed)
    nvfatbin.destroy(handle)
    return bytes(packed)


def ltoir(arch: int) -> bytes:
    program = nvvm.create_program()
    source = NVVM_IR.encode()
    nvvm.add_module_to_program(program, source, len(source), "k")
    options = [f"-arch=compute_{arch}", "-gen-lto", "-nvvm-latest"]
    nvvm.compile_program(program, len(options), options)
    result = bytearray(nvvm.get_compiled_result_size(program))
    nvvm.get_compiled_result(program, result)
    nvvm.destroy_program(program)
    return bytes(result)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, bytes, str, str]]:
    folder = tmp_path_factory.mktemp("images")
    cubins = [("cubin", assemble(folder, PTX, arch), arch, f"id{arch}") for arch in ("80", "90a", "100f")]
    return [*cubins, ("ptx", PTX.format(arch="75").encode() + b"\0", "75", "text"), ("ltoir", ltoir(75), "75", "lto")]


@pytest.mark.parametrize(
    ("options", "compression"),
    [
        (["-64", "-compress=false"], "none"),
        (["-64", "-compress-all"], "zstd"),
        (["-64", "-compress-all", "-compress-mode=size"], "zstd"),
    ],
)
def test_entries_come_back(options: list[str], compression: str, images: list[tuple[str, bytes, str, str]]) -> None:
    entries = read_fatbin("a.fatbin", pack(options, *images))
    assert [(e.kind, e.arch, e.identifier) for e in entries] == [
        ("elf", "sm_80", "id80"),
        ("elf", "sm_90a", "id90a"),
        ("elf", "sm_100f", "id100f"),
        ("ptx", "compute_75", "text"),
        ("ltoir", "compute_75", "lto"),
    ]
    # nvFatbin does not leave compressed LTO-IR readable.
    assert entries[4].compression == ("none" if compression == "none" else "scrambled")
    assert {e.compression for e in entries[:4]} == {compression}
    for entry, (kind, data, _, _) in zip(entries, images, strict=True):
        if entry.compression == "scrambled":
            assert entry.size == len(data)
            continue
        payload = entry.payload()
        assert len(payload) == entry.size
        if kind == "ptx":  # nvFatbin takes blanks out of PTX
            assert b"".join(payload.rstrip(b"\0").split()) == b"".join(data.rstrip(b"\0").split())
            continue
        # Without compression the format keeps no length: up to 7 bytes of padding follow the image.
        assert payload[: len(data)] == data
        assert payload[len(data) :] == bytes(len(payload) - len(data))
        assert len(payload) - len(data) < 8


def test_cuobjdump_lists_and_extracts_the_same(tmp_path: Path, images: list[tuple[str, bytes, str, str]]) -> None:
    path = tmp_path / "a.fatbin"
    path.write_bytes(pack(["-64", "-compress-all"], *images[:4]))
    entries = read_fatbin("a.fatbin", path.read_bytes())
    listed = re.findall(r"(ELF|PTX) file +\d+: \S*?\.(sm_\d+a?)\.", run_tool("cuobjdump", "-lelf", "-lptx", path))
    # cuobjdump takes a cubin's architecture from its contents, which do not keep the f of sm_100f.
    ours = [(e.kind.upper(), e.arch.replace("compute", "sm").removesuffix("f")) for e in entries]
    assert sorted(listed) == sorted(ours)


def test_fatbinary_writes_the_same_form(tmp_path: Path, images: list[tuple[str, bytes, str, str]]) -> None:
    (tmp_path / "a.cubin").write_bytes(images[1][1])
    image = f"--image3=kind=elf,sm=90a,file={tmp_path}/a.cubin"
    run_tool("fatbinary", f"--create={tmp_path}/a.fatbin", "-64", "--compress-all", image)
    (entry,) = read_fatbin("a.fatbin", (tmp_path / "a.fatbin").read_bytes())
    assert (entry.kind, entry.arch, entry.compression) == ("elf", "sm_90a", "zstd")
    assert entry.payload() == images[1][1]


def test_several_in_one_section(images: list[tuple[str, bytes, str, str]]) -> None:
    """Host objects hold one fat binary after the other, each aligned."""
    one, two = pack(["-64"], images[0]), pack(["-64"], images[1])
    entries = read_fatbin("a.o(.nv_fatbin)", one + bytes(24) + two + bytes(8))
    assert [(e.index, e.arch) for e in entries] == [(0, "sm_80"), (1, "sm_90a")]


@pytest.mark.parametrize(
    ("number", "option", "compression", "message"),
    [
        (0, "-compress-mode=speed", "lz4", "a: entry 0 (elf sm_80) is compressed by LZ4"),
        (4, "-compress-mode=size", "scrambled", "a: entry 0 (ltoir compute_75) is compressed and scrambled"),
    ],
)
def test_what_cannot_be_read_is_listed(
    number: int, option: str, compression: str, message: str, images: list[tuple[str, bytes, str, str]]
) -> None:
    (entry,) = read_fatbin("a", pack(["-64", "-compress-all", option], images[number]))
    assert (entry.compression, entry.size) == (compression, len(images[number][1]))
    with pytest.raises(InputError) as caught:
        entry.payload()
    assert str(caught.value) == f"{message}, wanted zstd or no compression"


def test_the_header_of_ltoir() -> None:
    found = [read_ltoir("a.ltoir", ltoir(arch)) for arch in (75, 90)]
    assert [info.sm for info in found] == [75, 90]
    # NVIDIA's own LLVM, which is not older than the IR that it reads.
    assert found[0].llvm_major == found[1].llvm_major >= llvm.llvm_version_info[0]


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"x", "a: is not LTO-IR"), (b"\xedCN\x7f", "a: LTO-IR header is truncated: 4 bytes, wanted 28")],
)
def test_damaged_ltoir(data: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_ltoir("a", data)
    assert str(caught.value) == message


def payloads(data: bytes) -> list[bytes]:
    return [entry.payload() for entry in read_fatbin("a", data)]


def refusal(data: bytes) -> str:
    with pytest.raises(InputError) as caught:
        payloads(data)
    return str(caught.value)


def with_field(data: bytes, index: int, value: int) -> bytes:
    """The first entry's header with one field changed."""
    fields = list(ENTRY.unpack_from(data, HEADER.size))
    fields[index] = value
    return data[: HEADER.size] + ENTRY.pack(*fields) + data[HEADER.size + ENTRY.size :]


def test_refusals(images: list[tuple[str, bytes, str, str]]) -> None:
    data = pack(["-64", "-compress-all"], images[0])
    size = len(data)
    assert refusal(b"") == "a: is empty, wanted a fat binary"
    assert refusal(b"text") == "a: fat binary header is truncated: 4 bytes, wanted 16"
    assert refusal(b"text" * 9) == "a: at 0 is 0x74786574, wanted a fat binary (0xba55ed50)"
    assert refusal(data[:-8]) == f"a: is truncated: {size - 8} bytes, its header says {size}"
    assert refusal(HEADER.pack(0xBA55ED50, 2, 16, 0)) == "a: fat binary version is 2, rglink reads 1"
    assert refusal(HEADER.pack(0xBA55ED50, 1, 16, 9) + bytes(9)) == "a: header of entry 0 is truncated"
    oversized = with_field(data, 3, 1 << 40)
    assert refusal(oversized).startswith(f"a: entry 0 is truncated: {size - 16} bytes are left, its header says ")
    assert refusal(with_field(data, 4, 1 << 30)).endswith("its header says 1073741824")
    assert refusal(with_field(data, 13, 1 << 40)).endswith("the limit is 1073741824")
    held = len(images[0][1])
    assert refusal(with_field(data, 13, 5)) == f"a: entry 0 (elf sm_80) holds {held} bytes, its header says 5"


def test_no_damage_makes_a_traceback(images: list[tuple[str, bytes, str, str]]) -> None:
    data = pack(["-64", "-compress-all"], images[0], images[3])
    assert refuses_damage(payloads, data, 7) > 100
