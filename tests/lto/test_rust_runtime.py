"""The allocator's entry points: run on this machine's CPU, and linked into real Rust output's shape."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rglink.ir import TRIPLE, Module
from rglink.lto.rust_runtime import define_rust_runtime, plain_name, runtime_names
from tests.lto.linking import HEAD

MANGLED = {
    "_RNvCsfgHYwM92fyn_7___rustc12___rust_alloc": "__rust_alloc",
    "_RNvCsfgHYwM92fyn_7___rustc14___rust_dealloc": "__rust_dealloc",
    "_RNvCsfgHYwM92fyn_7___rustc14___rust_realloc": "__rust_realloc",
    "_RNvCsfgHYwM92fyn_7___rustc19___rust_alloc_zeroed": "__rust_alloc_zeroed",
    "_RNvCsfgHYwM92fyn_7___rustc35___rust_no_alloc_shim_is_unstable_v2": "__rust_no_alloc_shim_is_unstable_v2",
    "_RNvCsfgHYwM92fyn_7___rustc26___rust_alloc_error_handler": "__rust_alloc_error_handler",
    "_RNvCsfgHYwM92fyn_7___rustc17rust_begin_unwind": "rust_begin_unwind",
}
TYPES = {
    "__rust_alloc": "ptr @{}(i64, i64)",
    "__rust_dealloc": "void @{}(ptr, i64, i64)",
    "__rust_realloc": "ptr @{}(ptr, i64, i64, i64)",
    "__rust_alloc_zeroed": "ptr @{}(i64, i64)",
    "__rust_no_alloc_shim_is_unstable_v2": "void @{}()",
    "__rust_alloc_error_handler": "void @{}(i64, i64)",
    "rust_begin_unwind": "void @{}(ptr)",
}


def asking(*names: str) -> Module:
    """A module with a kernel that takes the address of each name."""
    declared = "".join(f"declare {TYPES[plain_name(name)].format(name)}\n" for name in names)
    stores = "".join(f"store volatile ptr @{name}, ptr %p\n" for name in names)
    return Module.parse_text(f"{HEAD}{declared}define ptx_kernel void @k(ptr %p) {{ {stores} ret void }}", "asking")


def test_names_are_told_by_path() -> None:
    assert set(MANGLED.values()) == runtime_names()
    assert {name: plain_name(name) for name in MANGLED} == MANGLED
    assert plain_name("_RNvCs1_3dep12___rust_alloc") == ""
    assert plain_name("__rust_alloc") == "__rust_alloc"


@pytest.mark.parametrize("names", [tuple(MANGLED), tuple(MANGLED.values())])
def test_everything_undefined_becomes_local_and_convergent(names: tuple[str, ...]) -> None:
    module = asking(*names)
    assert define_rust_runtime(module) == sorted(names)
    module.verify()
    assert module.undefined_names() == {"malloc", "free"}
    linkage = {g.name: g.linkage for g in module.globals() if not g.is_declaration}
    assert {linkage[name] for name in names} == {"internal"}
    assert linkage["k"] == "external"
    assert "target-cpu" not in module.text()


def test_what_a_crate_defines_is_left_alone() -> None:
    module = asking("__rust_dealloc")
    module.link_in(Module.parse_text(f"{HEAD}define ptr @__rust_alloc(i64 %s, i64 %a) {{ ret ptr null }}", "own"))
    assert define_rust_runtime(module) == ["__rust_dealloc"]
    assert "ret ptr null" in module.text()
    assert define_rust_runtime(Module.parse_text(HEAD, "empty")) == []


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The same code for the host, over the C library's malloc, which aligns to 16 bytes as the device's does."""
    if shutil.which("llc-22") is None:
        pytest.skip("llc-22 (package llvm-22) is missing")
    folder: Path = tmp_path_factory.mktemp("runtime")
    names = ("__rust_alloc", "__rust_dealloc", "__rust_realloc", "__rust_alloc_zeroed")
    module = asking(*names)
    define_rust_runtime(module)
    module.set_linkage(names, "external")
    text = module.text().replace(TRIPLE, f"{platform.machine()}-unknown-linux-gnu").replace("ptx_kernel ", "")
    (folder / "rt.ll").write_text(text)
    subprocess.run(["llc-22", "-filetype=obj", "-relocation-model=pic", "rt.ll", "-o", "rt.o"], cwd=folder, check=True)
    subprocess.run(["cc", "-shared", "rt.o", "-o", "rt.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "rt.so"))


def function(library: ctypes.CDLL, name: str, result: type | None, count: int) -> Callable[..., int | None]:
    found = library[name]
    found.restype, found.argtypes = result, [ctypes.c_uint64] * count
    return found


@pytest.mark.parametrize("align", [1, 8, 16, 32, 256, 4096, 1 << 20])
def test_allocations_are_aligned_keep_their_bytes_and_are_freed(library: ctypes.CDLL, align: int) -> None:
    alloc = function(library, "__rust_alloc", ctypes.c_void_p, 2)
    zeroed = function(library, "__rust_alloc_zeroed", ctypes.c_void_p, 2)
    realloc = function(library, "__rust_realloc", ctypes.c_void_p, 4)
    dealloc = function(library, "__rust_dealloc", None, 3)
    live: list[tuple[int, int]] = []
    for size in (1, 7, 100, 5000):
        pointer = alloc(size, align)
        assert pointer is not None
        assert pointer % align == 0
        ctypes.memset(pointer, size & 0xFF, size)
        live.append((pointer, size))
    for pointer, size in live:
        assert ctypes.string_at(pointer, size) == bytes([size & 0xFF]) * size
        for new in (size * 3, 1 + size // 2):
            moved = realloc(pointer, size, align, new)
            assert moved is not None
            assert moved % align == 0
            kept = min(size, new)
            assert ctypes.string_at(moved, kept) == bytes([ctypes.string_at(moved, 1)[0]]) * kept
            pointer, size = moved, new
            ctypes.memset(pointer, 9, size)
        dealloc(pointer, size, align)
        clean = zeroed(size, align)
        assert clean is not None
        assert ctypes.string_at(clean, size) == bytes(size)
        dealloc(clean, size, align)


def test_what_cannot_be_had_is_null(library: ctypes.CDLL) -> None:
    alloc = function(library, "__rust_alloc", ctypes.c_void_p, 2)
    zeroed = function(library, "__rust_alloc_zeroed", ctypes.c_void_p, 2)
    realloc = function(library, "__rust_realloc", ctypes.c_void_p, 4)
    dealloc = function(library, "__rust_dealloc", None, 3)
    for size, align in ((2**64 - 64, 128), (2**64 - 1, 32), (2**63, 4096), (2**63, 8)):
        assert alloc(size, align) is None
        assert zeroed(size, align) is None
    pointer = alloc(64, 64)
    assert pointer is not None
    ctypes.memset(pointer, 5, 64)
    assert realloc(pointer, 64, 64, 2**64 - 32) is None
    assert ctypes.string_at(pointer, 64) == b"\5" * 64
    dealloc(pointer, 64, 64)
