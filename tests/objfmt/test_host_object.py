"""Host objects: the device code inside, and which kernels they use."""

from __future__ import annotations

import shutil
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from rglink.diagnostics import InputError
from rglink.objfmt.fatbin import read_fatbin
from rglink.objfmt.host_object import KernelNames, kernel_names_of, read_host_object

from .support import CUDA_BIN, PTX, assemble, refuses_damage, run_tool

TRIPLE = "x86_64-unknown-linux-gnu"

# What a Rust program leaves of `module.get_function("saxpy")`: literals end to end, no NUL.
RUST_HOST = """\
@literals = private constant [26 x i8] c"launching saxpyscale_rows!", section ".rodata"
@c_string = private constant [7 x i8] c"reduce\\00", section ".rodata"
@counter = global i32 7
@image = constant [7 x i8] c"unused\\00", section ".nv_fatbin"
define ptr @use() { ret ptr @literals }
define ptr @use2() { ret ptr @c_string }
declare void @_Z26__device_stub__Z6gatherPiPi()
declare void @extern_kernel()
define void @launch() { call void @_Z26__device_stub__Z6gatherPiPi()
  call void @extern_kernel()
  ret void }
"""


def host_object(text: str, triple: str = TRIPLE) -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(text)
    emitted: bytes = llvm.Target.from_triple(triple).create_target_machine().emit_object(module)
    return emitted


@pytest.fixture
def rust_host(tmp_path: Path) -> str:
    path = tmp_path / "host.o"
    path.write_bytes(host_object(RUST_HOST))
    return str(path)


@pytest.mark.parametrize(
    ("candidate", "used"),
    [
        ("saxpy", True),  # inside a longer word: Rust's literals
        ("scale_rows", True),
        ("reduce", True),
        ("_Z6gatherPi", True),  # by its launch stub
        ("extern_kernel", True),  # an undefined symbol
        ("unused", False),  # only in the device image
        ("absent", False),
    ],
)
def test_names_in_a_host_object(rust_host: str, candidate: str, used: bool) -> None:
    names = kernel_names_of(rust_host, ["other", candidate])
    assert names == KernelNames(frozenset([candidate] if used else []))


def test_a_name_inside_another_kernels_name_does_not_count(rust_host: str) -> None:
    assert kernel_names_of(rust_host, ["reduce", "red"]).matched == {"reduce"}
    assert kernel_names_of(rust_host, ["red"]).matched == {"red"}


def test_a_list(tmp_path: Path) -> None:
    path = tmp_path / "kernels.txt"
    path.write_text("# kept\nsaxpy\n\n  scale  # both instances\nsaxpi\nmissing\nsaxpi\n")
    names = kernel_names_of(str(path), ["saxpy", "scale", "dead"])
    assert names == KernelNames(frozenset(("saxpy", "scale")), ("saxpi", "missing"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x89PNG\0", "wanted a list of kernel names, or a host object or executable (ELF)"),
        (b"name\0", "wanted a list of kernel names, or a host object or executable (ELF)"),
        (host_object(RUST_HOST)[:200], "ELF section table is truncated"),
        (b"\x7fELF\2\1\1" + bytes(9) + b"\2\0\xe0\0" + bytes(60), "is an ELF executable for AMD GPU, wanted a host"),
    ],
)
def test_refusals(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        kernel_names_of(str(path), ["k"])
    assert str(caught.value).startswith(f"{path}: {message}")


def test_cubins_are_no_host_objects(tmp_path: Path) -> None:
    data = assemble(tmp_path, PTX, "80")
    with pytest.raises(InputError) as caught:
        read_host_object("a.cubin", data)
    message = "a.cubin: is an ELF executable for NVIDIA CUDA, wanted a host object or executable"
    assert str(caught.value) == message


@pytest.mark.parametrize("triple", [TRIPLE, "aarch64-unknown-linux-gnu"])
def test_device_code_is_found(triple: str) -> None:
    host = read_host_object("a.o", host_object(RUST_HOST, triple))
    assert [(section, bytes(data)) for section, data in host.device_code] == [(".nv_fatbin", b"unused\0")]
    assert read_host_object("a.o", host_object("@x = global i32 1", triple)).device_code == ()


CUDA = """\
__global__ void scale(int *p) { *p = 1; }
__global__ void unlaunched(int *p) { *p = 2; }
extern "C" __global__ void plain(int *p) { *p = 3; }
void launch(int *p) { scale<<<1, 1>>>(p); plain<<<1, 1>>>(p); }
"""


@pytest.mark.parametrize(("mode", "section"), [("-c", ".nv_fatbin"), ("-dc", "__nv_relfatbin")])
def test_what_nvcc_writes(mode: str, section: str, tmp_path: Path) -> None:
    if shutil.which("g++") is None or not (CUDA_BIN / "nvcc").exists():
        pytest.skip("g++ or nvcc is missing: apt install g++, pip install nvidia-cuda-nvcc nvidia-cuda-runtime")
    source, built = tmp_path / "a.cu", tmp_path / "a.o"
    source.write_text(CUDA)
    run_tool("nvcc", "-arch=sm_90", mode, source, "-o", built)
    host = read_host_object("a.o", built.read_bytes())
    assert [name for name, _ in host.device_code] == [section]
    kinds = [(e.kind, e.arch) for e in read_fatbin("a.o", host.device_code[0][1])]
    assert kinds == [("elf", "sm_90"), ("ptx", "compute_90")]
    candidates = ["_Z5scalePi", "plain", "elsewhere"]
    assert kernel_names_of(str(built), candidates).matched == {"_Z5scalePi", "plain"}


def test_no_damage_makes_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "host.o"

    def read(data: bytes) -> None:
        path.write_bytes(data or b"\x7fELF")
        kernel_names_of(str(path), ["saxpy"])

    assert refuses_damage(read, host_object(RUST_HOST), 127) > 10
