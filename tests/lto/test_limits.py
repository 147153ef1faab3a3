"""Sums of static shared and constant memory against what every target has."""

from __future__ import annotations

import pytest

from rglink.arch import parse_arch_list
from rglink.diagnostics import Diagnostics
from rglink.ir import Module
from rglink.irtext import ModuleText
from rglink.lto.derived import SHARED
from rglink.lto.limits import StaticMemory, check_constant_memory, check_shared_memory, statics_of, total_size

TARGETS = parse_arch_list("sm_80,compute_90")
PROGRAM = """
target triple = "nvptx64-nvidia-cuda"
@_RNvCs2zO1CNtWFRx_1k4TILE = internal addrspace(3) global [40000 x i8] undef, align 4
@_RNvCs2zO1CNtWFRx_3dep4PART = internal addrspace(3) global [7500 x { i8, i16 }] undef, align 16
@small = internal addrspace(3) global i32 undef, align 4
@pool = external addrspace(3) global [0 x i8], align 16
@table = internal constant [1 x ptr] [ptr @by_table]
define ptx_kernel void @big(ptr %p) {
  call void @helper(ptr %p)
  store ptr addrspacecast (ptr addrspace(3) @_RNvCs2zO1CNtWFRx_1k4TILE to ptr), ptr %p
  ret void
}
define internal void @helper(ptr %p) {
  store ptr @table, ptr %p
  store ptr addrspacecast (ptr addrspace(3) @pool to ptr), ptr %p
  ret void
}
define internal void @by_table(ptr %p) {
  store ptr addrspacecast (ptr addrspace(3) @_RNvCs2zO1CNtWFRx_3dep4PART to ptr), ptr %p
  call void @by_table(ptr %p)
  ret void
}
define ptx_kernel void @fits(ptr %p) {
  store ptr addrspacecast (ptr addrspace(3) @_RNvCs2zO1CNtWFRx_1k4TILE to ptr), ptr %p
  store ptr addrspacecast (ptr addrspace(3) @small to ptr), ptr %p
  ret void
}
"""


def read(text: str) -> ModuleText:
    return ModuleText.parse(Module.parse_text(text, "test").text())


def test_a_kernel_above_the_limit_is_told_with_its_statics() -> None:
    diags = Diagnostics()
    check_shared_memory(read(PROGRAM), ["fits", "big"], TARGETS, diags)
    assert [item.render() for item in diags.items] == [
        "rglink: error: kernel `big` has 70000 bytes of static shared memory, the limit is 49152 on every target"
        " (sm_80, compute_90) [shared-memory-overflow]\n"
        ">>> 40000 bytes: `k::TILE` in crate k\n"
        ">>> 30000 bytes: `dep::PART` in crate dep\n"
        ">>> help: make the largest smaller, or use the dynamic pool: a zero-length array in .rglink.shared whose size"
        " the host gives at launch"
    ]


def test_each_kernel_counts_for_itself() -> None:
    diags = Diagnostics()
    check_shared_memory(read(PROGRAM), ["fits"], TARGETS, diags)
    assert not diags.items


@pytest.mark.parametrize(("size", "errors"), [(49152, 0), (49153, 1)])
def test_the_limit_itself_is_allowed(size: int, errors: int) -> None:
    text = f"""target triple = "nvptx64-nvidia-cuda"
@t = internal addrspace(3) global [{size} x i8] undef
define ptx_kernel void @k(ptr %p) {{
  store ptr addrspacecast (ptr addrspace(3) @t to ptr), ptr %p
  ret void
}}
"""
    diags = Diagnostics()
    check_shared_memory(read(text), ["k"], TARGETS, diags)
    assert len(diags.items) == errors


def test_sizes_are_laid_out_with_their_alignment() -> None:
    assert statics_of(read(PROGRAM), SHARED) == [
        StaticMemory("_RNvCs2zO1CNtWFRx_1k4TILE", 40000, 4),
        StaticMemory("_RNvCs2zO1CNtWFRx_3dep4PART", 30000, 16),
        StaticMemory("small", 4, 4),
    ]
    assert total_size([StaticMemory("a", 1, 1), StaticMemory("b", 8, 8), StaticMemory("c", 2, 2)]) == 11
    assert total_size([StaticMemory("a", 24, 16), StaticMemory("b", 16, 16)]) == 40
    assert total_size([]) == 0


def constants(*sizes: int) -> ModuleText:
    lines = [
        f"@_RNvCs2zO1CNtWFRx_1{crate}5TABLE = addrspace(4) externally_initialized global [{size} x i8] zeroinitializer"
        for crate, size in zip("abcdefghijkl", sizes, strict=False)
    ]
    return read('target triple = "nvptx64-nvidia-cuda"\n' + "\n".join(lines))


def test_constant_memory_above_the_limit_lists_the_largest() -> None:
    diags = Diagnostics()
    check_constant_memory(constants(30720, 30720, 30721), diags)
    assert [item.render() for item in diags.items] == [
        "rglink: error: the program has 92161 bytes of constant memory, the limit is 65536"
        " [constant-memory-overflow]\n"
        ">>> 30721 bytes: `c::TABLE` in crate c\n"
        ">>> 30720 bytes: `a::TABLE` in crate a\n"
        ">>> 30720 bytes: `b::TABLE` in crate b\n"
        ">>> help: leave the largest in global memory: without .rglink.constant"
    ]


def test_two_of_the_three_fit() -> None:
    diags = Diagnostics()
    check_constant_memory(constants(30720, 30720), diags)
    assert not diags.items


def test_the_rest_of_a_long_list_is_summed() -> None:
    diags = Diagnostics()
    check_constant_memory(constants(*([6000] * 12)), diags)
    assert len(diags.items[0].places) == 11
    assert diags.items[0].places[-1] == "12000 bytes: 2 more"
