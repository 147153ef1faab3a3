"""Step 2: statics of shared and constant memory, by textual IR."""

from __future__ import annotations

import re

import pytest

from rglink.diagnostics import Diagnostics
from rglink.ir import Module
from rglink.irtext import ModuleText
from rglink.lto.device_abi import prepare_crate
from rglink.lto.spaces import POOL, MoveCounts, access_spaces, move_statics
from tests.lto.program import apply_device_abi, expose

HEAD = 'target triple = "nvptx64-nvidia-cuda"\n'
SHARED = 'section ".rglink.shared", align 4'
CONSTANT = 'section ".rglink.constant", align 4'
ACCESS = re.compile(r"^\t(?:@%p\d+ )?((?:ld|st|atom|red)\.\S+)", re.MULTILINE)
SPACES = {"param", "shared", "global", "const", "local"}


def generic_accesses(ptx: str) -> list[str]:
    return [access for access in ACCESS.findall(ptx) if not SPACES & set(access.split("."))]


def moved(text: str) -> tuple[Module, MoveCounts, Diagnostics]:
    module = Module.parse_text(HEAD + text, "test")
    parsed, diags = ModuleText.parse(module.text()), Diagnostics()
    counts = move_statics(parsed, diags)
    module.replace(parsed.render())
    module.verify()
    return module, counts, diags


def line_of(module: Module, name: str) -> str:
    return next(line for line in module.text().splitlines() if line.startswith(f"@{name} = "))


def test_a_shared_static_moves_and_all_its_uses_are_casts() -> None:
    module, counts, diags = moved(
        f"""
@flag = internal global [4 x i8] undef, {SHARED}
@"a $ b" = global <{{ [8 x i8], [8 x i8] }}> <{{ [8 x i8] undef, [8 x i8] poison }}>, {SHARED}
@other = global i32 0
define ptr @f(i1 %c, ptr %p) {{
  %v = load i32, ptr @flag
  store ptr @flag, ptr %p
  %same = icmp eq ptr @flag, @"a $ b"
  br i1 %c, label %one, label %two
one:
  br label %two
two:
  %phi = phi ptr [ @flag, %0 ], [ getelementptr (i8, ptr @"a $ b", i64 4), %one ]
  %sel = select i1 %same, ptr %phi, ptr @"a $ b"
  call void asm sideeffect "// @flag", "r"(ptr @flag)
  ret ptr %sel
}}
"""
    )
    assert counts == MoveCounts(shared=2, uses=8)
    assert not diags.items
    assert line_of(module, "flag") == "@flag = internal addrspace(3) global [4 x i8] undef, align 4"
    assert line_of(module, '"a $ b"').startswith(
        '@"a $ b" = addrspace(3) global <{ [8 x i8], [8 x i8] }> undef, align 4'
    )
    printed = module.text()
    assert printed.count("addrspace(3) @flag to ptr)") == 5
    assert '"// @flag"' in printed


def test_accesses_go_through_shared_memory() -> None:
    module, _, _ = moved(
        f"""
@a = internal global [64 x i8] undef, {SHARED}
@b = internal global [64 x i8] undef, {SHARED}
define ptx_kernel void @k(i1 %c, i64 %i, ptr %out) {{
  %p = getelementptr inbounds i32, ptr @a, i64 %i
  %q = getelementptr inbounds i8, ptr %p, i64 4
  store i32 1, ptr %q
  %either = select i1 %c, ptr @a, ptr @b
  %e = getelementptr i32, ptr %either, i64 %i
  store volatile i32 2, ptr %e
  %old = atomicrmw add ptr getelementptr (i8, ptr @b, i64 8), i32 1 syncscope("block") monotonic
  %pair = cmpxchg ptr @b, i32 0, i32 %old acq_rel monotonic
  %x = load atomic i32, ptr @a syncscope("block") acquire, align 4
  br label %loop
loop:
  %walk = phi ptr [ @a, %0 ], [ %next, %loop ]
  %next = getelementptr i8, ptr %walk, i64 4
  store i32 %x, ptr %walk
  %end = icmp eq ptr %next, getelementptr (i8, ptr @a, i64 64)
  br i1 %end, label %done, label %loop
done:
  %mixed = select i1 %c, ptr @a, ptr %out
  store i32 3, ptr %mixed
  ret void
}}
"""
    )
    text, diags = ModuleText.parse(module.text()), Diagnostics()
    assert access_spaces(text, diags) == 6
    module.replace(text.render())
    module.verify()
    stores = [
        line for line in module.text().splitlines() if re.match(r"  (.* = )?(store|load|atomicrmw|cmpxchg) ", line)
    ]
    assert [line for line in stores if "addrspace(3)" not in line] == ["  store i32 3, ptr %mixed, align 4"]
    assert access_spaces(ModuleText.parse(module.text()), diags) == 0  # nothing is left for a second run
    assert not diags.items
    module.optimize(3)
    assert generic_accesses(module.emit_ptx("sm_80", "", 3)) == ["st.b32"]


def test_no_generic_access_reaches_a_raw_shared_offset() -> None:
    """Two shared statics reached through casts, one written in a data-dependent branch."""
    module = Module.parse_text(
        HEAD
        + f"""
@a = internal global [1024 x i8] undef, {SHARED}
@b = internal global [1024 x i8] undef, {SHARED}
define ptx_kernel void @k(ptr %in, ptr %out) {{
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %i = zext i32 %t to i64
  %src = getelementptr i32, ptr %in, i64 %i
  %v = load i32, ptr %src
  %pa = getelementptr i32, ptr @a, i64 %i
  %word = ptrtoint ptr @b to i64
  %raw = inttoptr i64 %word to ptr
  %pb = getelementptr i32, ptr %raw, i64 %i
  store i32 %v, ptr %pa
  %odd = trunc i32 %v to i1
  br i1 %odd, label %write, label %skip
write:
  store i32 %v, ptr %pb
  br label %skip
skip:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %x = load i32, ptr %pa
  %y = load i32, ptr %pb
  %sum = add i32 %x, %y
  %dst = getelementptr i32, ptr %out, i64 %i
  store i32 %sum, ptr %dst
  ret void
}}
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
""",
        "test",
    )
    diags = Diagnostics()
    apply_device_abi(module, diags)
    module.optimize(3)
    expose(module, diags)
    ptx = module.emit_ptx("sm_80", "", 3)
    assert not generic_accesses(ptx)
    assert ptx.count("st.shared") == 2
    assert ptx.count("ld.shared") == 2


@pytest.mark.parametrize("value", ["zeroinitializer", 'c"\\01\\02\\03\\04"'])
def test_an_initialised_shared_static_is_refused(value: str) -> None:
    _, _, diags = moved(f"@_RNvCs2zO1CNtWFRx_1k4FLAG = internal global [4 x i8] {value}, {SHARED}")
    assert [item.render() for item in diags.items] == [
        f"rglink: error: shared static `k::FLAG` has an initial value ({value}): shared memory starts without one,"
        " nothing runs before a kernel that could store it [initialised-shared]\n"
        ">>> in crate k\n"
        ">>> help: declare it as MaybeUninit::uninit() and let the kernel write it before a barrier"
    ]


def test_an_initialised_shared_global_of_textual_ir_is_refused() -> None:
    _, counts, diags = moved("@tile = internal addrspace(3) global [4 x i32] zeroinitializer, align 4")
    assert counts == MoveCounts()
    assert [item.slug for item in diags.items] == ["initialised-shared"]
    assert "`tile` has an initial value (zeroinitializer)" in diags.items[0].message
    _, _, fine = moved("@tile = internal addrspace(3) global [4 x i32] undef, align 4")
    assert not fine.items


def test_the_address_of_shared_memory_fits_no_static() -> None:
    _, _, diags = moved(
        f"@flag = internal global [4 x i8] undef, {SHARED}\n"
        "@where = global { ptr, i32 } { ptr @flag, i32 1 }\n"
        "@again = alias i8, ptr @flag\n"
    )
    assert [item.render() for item in diags.items] == [
        f"rglink: error: {what} `{name}` holds the address of shared static `flag`, which differs from block to block:"
        " it can be taken in a kernel only [shared-address]"
        for what, name in (("static", "where"), ("alias", "again"))
    ]


def test_constant_statics_move_and_keep_their_value_for_the_host_to_change() -> None:
    module, counts, diags = moved(
        f"""
@table = global [16 x i8] c"\\01\\00\\00\\00\\02\\00\\00\\00\\03\\00\\00\\00\\04\\00\\00\\00", {CONSTANT}
@folded = internal constant [4 x i8] zeroinitializer, {CONSTANT}
@llvm.used = appending global [1 x ptr] [ptr @table], section "llvm.metadata"
define ptx_kernel void @k(i64 %i, ptr %out) {{
  %p = getelementptr i32, ptr @table, i64 %i
  %v = load i32, ptr %p
  store i32 %v, ptr %out
  ret void
}}
"""
    )
    assert (counts.constant, counts.shared) == (2, 0)
    assert line_of(module, "table").startswith("@table = addrspace(4) externally_initialized global [16 x i8]")
    assert "ptr addrspacecast (ptr addrspace(4) @table to ptr)" in line_of(module, "llvm.used")
    assert [(item.level, item.slug) for item in diags.items] == [("warning", "constant-in-constant-section")]
    text = ModuleText.parse(module.text())
    assert access_spaces(text, diags) == 1
    module.replace(text.render())
    module.optimize(3)
    ptx = module.emit_ptx("sm_80", "", 3)
    assert ".visible .const .align 4 .b8 table[16] = {1, 0, 0, 0, 2" in ptx
    assert "ld.const.b32" in ptx


def test_a_write_to_constant_memory_is_an_error() -> None:
    module, _, diags = moved(
        f"@table = global [4 x i8] zeroinitializer, {CONSTANT}\n"
        "define void @f(i32 %x) {\n  store i32 %x, ptr @table\n  ret void\n}\n"
    )
    access_spaces(ModuleText.parse(module.text()), diags)
    assert [item.render() for item in diags.items] == [
        "rglink: error: write to constant memory, which only the host can change [constant-store]\n>>> in f"
    ]


def test_shared_statics_leave_llvm_used() -> None:
    module, _, _ = moved(
        f"""
@flag = global [4 x i8] undef, {SHARED}
@kept = global i32 0
@llvm.used = appending global [2 x ptr] [ptr @flag, ptr @kept], section "llvm.metadata"
@llvm.compiler.used = appending global [1 x ptr] [ptr @flag], section "llvm.metadata"
"""
    )
    assert line_of(module, "llvm.used").startswith("@llvm.used = appending global [1 x ptr] [ptr @kept]")
    assert "llvm.compiler.used" not in module.text()


POOL_CRATE = """
@{name} = {linkage}global <{{}}> zeroinitializer, section ".rglink.shared", align {align}
define ptx_kernel void @{name}_kernel(i64 %i) {{
  %p = getelementptr inbounds float, ptr @{name}, i64 %i
  store float 1.0, ptr %p
  ret void
}}
"""


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("linkage", ["internal ", ""])
def test_the_dynamic_pools_of_all_crates_are_one(order: tuple[int, int], linkage: str) -> None:
    crates: list[Module] = []
    for name, align in (("small", 16), ("large", 128)):
        module = Module.parse_text(HEAD + POOL_CRATE.format(name=name, align=align, linkage=linkage), name)
        prepare_crate(module, Diagnostics())
        module.optimize(3)
        crates.append(module)
    program = crates[order[0]]
    program.link_in(crates[order[1]])
    apply_device_abi(program, Diagnostics())
    pools = [line for line in program.text().splitlines() if line.startswith("@")]
    assert pools == [f"@{POOL} = external addrspace(3) global [0 x i8], align 128"]
    ptx = program.emit_ptx("sm_80", "", 3)
    assert ptx.count(".extern .shared .align 128 .b8 __rglink_dynamic_shared[];") == 1
    assert ptx.count("st.shared") == 2
    assert not generic_accesses(ptx)


def test_private_shared_statics_of_one_name_stay_two() -> None:
    crates = []
    for name in ("a", "b"):
        text = f"@TILE = internal global [64 x i8] undef, {SHARED}\n"
        text += f"define ptx_kernel void @{name}(i64 %i) {{\n  %p = getelementptr i8, ptr @TILE, i64 %i\n"
        text += "  store i8 1, ptr %p\n  ret void\n}\n"
        module = Module.parse_text(HEAD + text, name)
        prepare_crate(module, Diagnostics())
        crates.append(module)
    crates[0].link_in(crates[1])
    apply_device_abi(crates[0], Diagnostics())
    statics = [line.split(" = ")[0] for line in crates[0].text().splitlines() if "addrspace(3) global" in line]
    assert len(set(statics)) == 2


def test_a_declaration_without_section_meets_the_moved_definition() -> None:
    """rustc repeats no section where a static of another crate is declared."""
    for first in (0, 1):
        owner = Module.parse_text(HEAD + f"@tile = global [64 x i8] undef, {SHARED}\n", "owner")
        user = Module.parse_text(
            HEAD
            + "@tile = external global { [16 x i32] }\n"
            + "define ptx_kernel void @k(i64 %i) {\n  %p = getelementptr i32, ptr @tile, i64 %i\n"
            + "  store i32 1, ptr %p\n  ret void\n}\n",
            "user",
        )
        modules = [owner, user]
        for module in modules:
            prepare_crate(module, Diagnostics())
            module.optimize(3)
        modules[first].link_in(modules[1 - first])
        apply_device_abi(modules[first], Diagnostics())
        ptx = modules[first].emit_ptx("sm_80", "", 3)
        assert "st.shared.b32" in ptx
        assert not generic_accesses(ptx)


def test_the_second_run_changes_nothing() -> None:
    module, _, _ = moved(
        f"@flag = internal global [4 x i8] undef, {SHARED}\n@c = global [4 x i8] zeroinitializer, {CONSTANT}\n"
        "define void @f(ptr %p) {\n  store ptr @flag, ptr %p\n  store ptr @c, ptr %p\n  ret void\n}\n"
    )
    again, diags = ModuleText.parse(module.text()), Diagnostics()
    assert move_statics(again, diags) == MoveCounts()
    assert not diags.items
    assert again.render() == ModuleText.parse(module.text()).render()
