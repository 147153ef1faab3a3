"""Barriers to the unaligned form and, where it is proven safe, back."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from rglink.diagnostics import Diagnostics
from rglink.ir import Module
from rglink.irtext import ModuleText
from rglink.lto.barriers import BarrierDecision, align_uniform_barriers, unalign_barriers
from tests.lto.ptx import assemble, emit, tools

HEAD = 'target triple = "nvptx64-nvidia-cuda"\n'
# Old and new names; LLVM upgrades the old ones.
INTRINSICS = HEAD + """
declare void @llvm.nvvm.barrier0()
declare i32 @llvm.nvvm.barrier0.popc(i32)
declare i32 @llvm.nvvm.barrier0.and(i32)
declare i32 @llvm.nvvm.barrier0.or(i32)
declare void @llvm.nvvm.barrier.n(i32)
declare void @llvm.nvvm.barrier(i32, i32)
declare void @llvm.nvvm.bar.sync(i32)
declare void @llvm.nvvm.barrier.cta.arrive.aligned.count(i32, i32)
declare void @llvm.nvvm.barrier.cta.sync.all(i32)
declare void @llvm.nvvm.bar.warp.sync(i32)
define ptx_kernel void @k(ptr %p, i32 %x) {
  call void @llvm.nvvm.barrier0()
  %a = call i32 @llvm.nvvm.barrier0.popc(i32 %x)
  %b = call i32 @llvm.nvvm.barrier0.and(i32 %x)
  %c = call i32 @llvm.nvvm.barrier0.or(i32 %x)
  call void @llvm.nvvm.barrier.n(i32 1)
  call void @llvm.nvvm.barrier(i32 1, i32 64)
  call void @llvm.nvvm.bar.sync(i32 3)
  call void @llvm.nvvm.barrier.cta.arrive.aligned.count(i32 4, i32 64)
  call void @llvm.nvvm.barrier.cta.sync.all(i32 5)
  call void @llvm.nvvm.bar.warp.sync(i32 -1)
  store i32 %a, ptr %p
  store i32 %b, ptr %p
  store i32 %c, ptr %p
  ret void
}
"""  # fmt: skip
CLUSTER = HEAD + """
declare void @llvm.nvvm.barrier.cluster.arrive.aligned()
declare void @llvm.nvvm.barrier.cluster.arrive.relaxed.aligned()
declare void @llvm.nvvm.barrier.cluster.wait.aligned()
define ptx_kernel void @k() {
  call void @llvm.nvvm.barrier.cluster.arrive.aligned()
  call void @llvm.nvvm.barrier.cluster.wait.aligned()
  call void @llvm.nvvm.barrier.cluster.arrive.relaxed.aligned()
  call void @llvm.nvvm.barrier.cluster.wait.aligned()
  ret void
}
"""  # fmt: skip


def unaligned(ir: str) -> tuple[Module, int]:
    module = Module.parse_text(ir, "test")
    text = ModuleText.parse(module.text())
    changed = unalign_barriers(text)
    module.replace(text.render())
    module.verify()
    return module, changed


def aligned(module: Module) -> tuple[list[BarrierDecision], Diagnostics]:
    text, diags = ModuleText.parse(module.text()), Diagnostics()
    decisions = align_uniform_barriers(text, ["k"], diags)
    module.replace(text.render())
    module.verify()
    return decisions, diags


def barriers(ptx: str) -> list[str]:
    return [" ".join(line.split()) for line in ptx.splitlines() if re.match(r"\s*bar(rier)?\.(?!warp)", line)]


def test_every_intrinsic_goes_to_the_unaligned_form_and_back() -> None:
    before = barriers(emit(INTRINSICS, "sm_75"))
    module, changed = unaligned(INTRINSICS)
    assert changed == 8
    between = barriers(emit(module.text(), "sm_75"))
    assert [line.split(".")[0] for line in between] == ["barrier"] * 9
    decisions, _ = aligned(module)
    assert [decision.aligned for decision in decisions] == [True] * 9
    after = barriers(assemble(module.text(), "sm_75"))
    assert after == [line.replace("barrier.", "bar.") for line in before]


def test_cluster_barriers_too() -> None:
    module, changed = unaligned(CLUSTER)
    assert changed == 4
    assert not any(".aligned" in line for line in barriers(emit(module.text(), "sm_90", "+ptx80")))
    aligned(module)
    assert barriers(assemble(module.text(), "sm_90", "+ptx80")) == barriers(emit(CLUSTER, "sm_90", "+ptx80"))


def test_declarations_are_those_that_are_called() -> None:
    module, _ = unaligned(INTRINSICS)
    declared = {item.name for item in ModuleText.parse(module.text()).of_kind("declare")}
    assert not any(".aligned" in name for name in declared)
    assert "llvm.nvvm.bar.warp.sync" in declared


ASM = {
    "bar.sync 0;": "barrier.sync 0;",
    "bar.cta.sync 1, 64;": "barrier.cta.sync 1, 64;",
    "bar.arrive 2, 64;": "barrier.arrive 2, 64;",
    "barrier.sync.aligned 3;": "barrier.sync 3;",
    "barrier.cluster.arrive.release.aligned;": "barrier.cluster.arrive.release;",
    "barrier.cluster.wait.acquire.aligned;": "barrier.cluster.wait.acquire;",
    "{ .reg .pred q; setp.ne.u32 q, 1, 0; bar.red.popc.u32 $0, 0, q; }": (
        "{ .reg .pred q; setp.ne.u32 q, 1, 0; barrier.red.popc.u32 $0, 0, q; }"
    ),
    "{ .reg .pred q, r; setp.ne.u32 q, 1, 0; barrier.red.or.aligned.pred r, 0, q; selp.u32 $0, 1, 0, r; }": (
        "{ .reg .pred q, r; setp.ne.u32 q, 1, 0; barrier.red.or.pred r, 0, q; selp.u32 $0, 1, 0, r; }"
    ),
    "// one\\0Abar.sync 0;\\0A\\09bar.sync 1;": "// one\\0Abarrier.sync 0;\\0A\\09barrier.sync 1;",
}
UNTOUCHED = ["bar.warp.sync -1;", "mbarrier.arrive.shared.b64 _, [r];", "barrier.sync 0;", "mov.u32 $0, foo.bar.sync;"]


def asm(text: str) -> str:
    constraints = '"=r,~{memory}"() #0' if "$0" in text else '"~{memory}"() #0'
    kind, result = ("i32", "%r = ") if "$0" in text else ("void", "")
    body = f'  {result}call {kind} asm sideeffect "{text}", {constraints}'
    return f"{HEAD}define ptx_kernel void @k() {{\n{body}\n  ret void\n}}\nattributes #0 = {{ convergent }}\n"


@pytest.mark.parametrize(("old", "new"), ASM.items())
def test_asm_text(old: str, new: str) -> None:
    module, changed = unaligned(asm(old))
    assert changed == len(re.findall(r"bar\w*\.(?:cta\.)?[sacrw]", old))
    assert f'"{new}"' in module.text()
    decisions, diags = aligned(module)
    assert decisions[0].aligned
    assert diags.items == []
    assert module.text().count(".aligned") == changed
    assemble(module.text(), "sm_90", "+ptx80")


@pytest.mark.parametrize("text", UNTOUCHED)
def test_other_asm_text_stays(text: str) -> None:
    module, changed = unaligned(asm(text))
    assert changed == 0
    assert f'"{text}"' in module.text()


DIVERGENT_ASM = HEAD + """
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
define ptx_kernel void @_RNvCs1234_5early4work(i32 %n) !dbg !4 {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %c = icmp ult i32 %t, %n
  br i1 %c, label %some, label %all, !dbg !6
some:
  call void asm sideeffect "bar.sync 0;", "~{memory}"() #0, !dbg !5
  br label %all
all:
  ret void
}
attributes #0 = { convergent }
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!3}
!0 = distinct !DICompileUnit(language: DW_LANG_Rust, file: !1, emissionKind: LineTablesOnly)
!1 = !DIFile(filename: "src/lib.rs", directory: "/x")
!2 = !DISubroutineType(types: !{})
!3 = !{i32 2, !"Debug Info Version", i32 3}
!4 = distinct !DISubprogram(name: "work", file: !1, line: 3, type: !2, unit: !0, spFlags: DISPFlagDefinition)
!5 = !DILocation(line: 7, column: 3, scope: !4)
!6 = !DILocation(line: 6, column: 3, scope: !4)
"""  # fmt: skip


def test_an_asm_barrier_under_a_divergent_branch_is_reported_with_its_line() -> None:
    module, changed = unaligned(DIVERGENT_ASM)
    decisions, diags = aligned(module)
    assert changed == 1
    reason = "the branch at src/lib.rs:6 may part the threads"
    assert decisions == [BarrierDecision("_RNvCs1234_5early4work", 1, False, reason, "src/lib.rs:7")]
    assert "barrier.sync 0;" in module.text()
    assert [item.render() for item in diags.items] == [
        "rglink: warning: src/lib.rs:7: a barrier in asm that not all threads of a block may reach together "
        "[divergent-barrier]\n"
        ">>> in early::work of crate early (src/lib.rs:7)\n"
        f">>> {reason}\n"
        ">>> help: move the barrier to where control does not depend on the thread, or use the barrier intrinsic"
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("@p bar.sync 0;", "the barrier is predicated within its asm text"),
        ("@!p bra L; bar.sync 0; L:", "the asm text has control flow of its own"),
        ("bar.sync %r1;", "the barrier's number or count may differ between threads"),
    ],
)
def test_asm_that_the_proof_cannot_read_stays_unaligned(text: str, reason: str) -> None:
    module, _ = unaligned(asm(text))
    (decision,), diags = aligned(module)
    assert (decision.aligned, decision.reason) == (False, reason)
    assert [item.slug for item in diags.items] == ["divergent-barrier"]


def test_a_reduction_costs_what_the_aligned_form_costs(tmp_path: Path) -> None:
    module, _ = unaligned(REDUCTION)
    aligned(module)
    assert _instructions(module.text(), tmp_path) == _instructions(REDUCTION, tmp_path)


REDUCTION = HEAD + """
@TILE = internal addrspace(3) global [256 x float] undef
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
define ptx_kernel void @k(ptr %out) {
entry:
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %b = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %p = getelementptr float, ptr addrspace(3) @TILE, i32 %t
  br label %head
head:
  %s0 = phi i32 [ %b, %entry ], [ %s, %join ]
  %more = icmp ugt i32 %s0, 1
  br i1 %more, label %body, label %done
body:
  %s = lshr i32 %s0, 1
  %c = icmp ult i32 %t, %s
  br i1 %c, label %add, label %join
add:
  %q = getelementptr float, ptr addrspace(3) %p, i32 %s
  %x = load float, ptr addrspace(3) %p
  %y = load float, ptr addrspace(3) %q
  %z = fadd float %x, %y
  store float %z, ptr addrspace(3) %p
  br label %join
join:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  br label %head
done:
  %r = load float, ptr addrspace(3) @TILE
  store float %r, ptr %out
  ret void
}
"""  # fmt: skip


def _instructions(ir: str, folder: Path) -> int:
    cubin = folder / "k.cubin"
    assemble(ir, "sm_75", cubin=cubin)
    tool = tools() / "nvdisasm"
    listing = subprocess.run([tool, "-c", cubin], capture_output=True, text=True, check=True).stdout
    return len(re.findall(r"/\*[0-9a-f]{4}\*/\s+\S", listing))
