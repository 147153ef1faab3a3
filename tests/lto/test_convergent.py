"""Step 1: what threads do together stays where it is through LLVM's whole pipeline."""

from __future__ import annotations

import re

import pytest

from rglink.diagnostics import Diagnostics
from rglink.ir import Module
from rglink.irtext import ModuleText
from rglink.lto.convergent import ConvergentCounts, mark_convergent

HEAD = 'target triple = "nvptx64-nvidia-cuda"\n'
# A barrier after which a branch repeats the condition of the one before: jump threading copies the barrier.
THREADED = (
    HEAD
    + """
define ptx_kernel void @k(ptr %p, i32 %n) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %c = icmp slt i32 %t, %n
  br i1 %c, label %first, label %middle
first:
  store i32 1, ptr %p
  br label %middle
middle:
  call void asm sideeffect "bar.sync 0;", "~{memory}"(), !srcloc !0
  br i1 %c, label %second, label %done
second:
  %q = getelementptr i32, ptr %p, i32 %t
  store i32 2, ptr %q
  br label %done
done:
  ret void
}
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
!0 = !{i64 7}
"""
)


def marked(text: str) -> tuple[Module, ConvergentCounts, Diagnostics]:
    module = Module.parse_text(text, "test")
    parsed, diags = ModuleText.parse(module.text()), Diagnostics()
    counts = mark_convergent(parsed, diags)
    module.replace(parsed.render())
    module.verify()
    return module, counts, diags


def test_asm_barriers_are_copied_without_the_mark_and_not_with_it() -> None:
    unmarked = Module.parse_text(THREADED, "test")
    unmarked.optimize(3)
    assert unmarked.text().count("bar.sync") == 2  # LLVM would break the program
    module, counts, _ = marked(THREADED)
    assert counts == ConvergentCounts(functions=1, asm_calls=1)
    module.optimize(3)
    assert module.text().count("bar.sync") == 1


def test_the_second_run_changes_nothing() -> None:
    module, _, _ = marked(THREADED)
    again = ModuleText.parse(module.text())
    assert mark_convergent(again, Diagnostics()) == ConvergentCounts()
    assert again.render() == ModuleText.parse(module.text()).render()


MMA = "llvm.nvvm.mma.m16n8k8.row.col.tf32"


def test_a_tensor_instruction_is_copied_without_the_mark_and_not_with_it() -> None:
    call = f"""%d = call {{ float, float, float, float }} @{MMA}(
    i32 %n, i32 %n, i32 %n, i32 %n, i32 %n, i32 %n, float 1.0, float 1.0, float 1.0, float 1.0)
  %r = extractvalue {{ float, float, float, float }} %d, 0
  store float %r, ptr %p"""
    text = THREADED.replace('call void asm sideeffect "bar.sync 0;", "~{memory}"(), !srcloc !0', call)
    text = text.replace("store i32 1", "store volatile i32 1")
    text += (
        f"declare {{ float, float, float, float }} @{MMA}(i32, i32, i32, i32, i32, i32, float, float, float, float)\n"
    )
    unmarked = Module.parse_text(text, "test")
    unmarked.optimize(3)
    assert unmarked.text().count(f"@{MMA}(") == 3  # two calls, one declaration
    for level in (1, 2, 3):
        module, counts, _ = marked(text)
        assert counts.intrinsic_calls == 1
        module.optimize(level)
        assert module.text().count(f"@{MMA}(") == 2
        ptx = module.emit_ptx("sm_80", "", level)
        assert ptx.count("mma.sync") == 1


def test_a_tensor_instruction_stays_before_the_branch_that_uses_it() -> None:
    text = (
        HEAD
        + f"""
define ptx_kernel void @k(ptr %p, i32 %a, i32 %b, float %c) {{
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %d = call {{ float, float, float, float }} @{MMA}(
    i32 %a, i32 %a, i32 %a, i32 %a, i32 %b, i32 %b, float %c, float %c, float %c, float %c)
  %r = extractvalue {{ float, float, float, float }} %d, 0
  %low = icmp slt i32 %t, 8
  br i1 %low, label %use, label %done
use:
  store float %r, ptr %p
  br label %done
done:
  ret void
}}
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare {{ float, float, float, float }} @{MMA}(i32, i32, i32, i32, i32, i32, float, float, float, float)
"""
    )
    for level in (0, 1, 2, 3):
        module, _, _ = marked(text)
        module.optimize(level)
        ptx = module.emit_ptx("sm_80", "", level)
        assert ptx.index("mma.sync") < min(match.start() for match in re.finditer(r"@%p\d+ bra", ptx))


def test_a_collective_that_llvm_knows_is_left_to_its_declaration() -> None:
    text = HEAD + (
        "define void @f() convergent {\n  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)\n  ret void\n}\n"
        "declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)\n"
    )
    _, counts, _ = marked(text)
    assert counts == ConvergentCounts()


def test_shared_groups_are_not_edited() -> None:
    text = (
        HEAD
        + """
define void @f() #0 {
  call void asm sideeffect "bar.sync 0;", ""() #1, !srcloc !0
  call void @g() #1
  ret void
}
declare void @g() #0
declare i32 @llvm.ctpop.i32(i32) #0
define i32 @pure(i32 %x) #0 {
  %y = call i32 asm "add.s32 $0, $1, 1;", "=r,r"(i32 %x) #1
  ret i32 %y
}
attributes #0 = { nounwind "key"="a b" memory(argmem: read, inaccessiblemem: none) }
attributes #1 = { nounwind }
!0 = !{i64 7}
"""
    )
    module, counts, diags = marked(text)
    assert counts == ConvergentCounts(functions=3, asm_calls=1)
    assert not diags.items
    printed = module.text()
    groups = ModuleText.parse(printed).attribute_groups()
    for pattern, convergent in (
        (r"define void @f\(\) #(\d+)", True),
        (r"declare void @g\(\) #(\d+)", True),
        (r'asm sideeffect "bar.sync 0;", ""\(\) #(\d+), !srcloc', True),
        (r"call void @g\(\) #(\d+)", False),
        (r'asm "add.s32 \$0, \$1, 1;", "=r,r"\(i32 %x\) #(\d+)', False),
    ):
        match = re.search(pattern, printed)
        assert match is not None, pattern
        assert ("convergent" in groups[int(match[1])].split()) is convergent
        assert "nounwind" in groups[int(match[1])]
    assert '"key"="a b"' in printed


@pytest.mark.parametrize(
    ("assembly", "instruction"),
    [
        ("shfl.sync.bfly.b32 $0, $1, 1, 31, -1;", "shfl.sync.bfly.b32"),
        ("{ .reg .pred p; setp.ne.u32 p, $1, 0; vote.sync.any.pred p, p, -1; selp.u32 $0, 1, 0, p; }",
         "vote.sync.any.pred"),
        ("bar.red.popc.u32 $0, 0, $1;", "bar.red.popc.u32"),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 $0, $1, $1, $1;",
         "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"),
    ],
)  # fmt: skip
def test_a_collective_in_a_pure_asm_is_an_error(assembly: str, instruction: str) -> None:
    text = (
        HEAD
        + f"""
define i32 @_RNvCs2zO1CNtWFRx_1k3sum(i32 %x) !dbg !5 {{
  %y = call i32 asm "{assembly}", "=r,r"(i32 %x), !dbg !7
  ret i32 %y
}}
!llvm.dbg.cu = !{{!0}}
!llvm.module.flags = !{{!6}}
!0 = distinct !DICompileUnit(language: DW_LANG_Rust, file: !1, emissionKind: FullDebug)
!1 = !DIFile(filename: "src/k.rs", directory: ".")
!2 = !{{}}
!4 = !DISubroutineType(types: !2)
!5 = distinct !DISubprogram(name: "sum", file: !1, line: 3, type: !4, unit: !0)
!6 = !{{i32 2, !"Debug Info Version", i32 3}}
!7 = !DILocation(line: 12, column: 4, scope: !5)
"""
    )
    _, _, diags = marked(text)
    assert [item.render() for item in diags.items] == [
        f"rglink: error: `{instruction}` in an asm without side effects: it may be moved to where other threads do not"
        " take part [pure-collective]\n"
        ">>> in k::sum of crate k (src/k.rs:12)\n"
        ">>> help: leave options(pure) out"
    ]


def test_functions_of_the_collective_section_are_inlined() -> None:
    text = (
        HEAD
        + """
define i32 @ballot(i32 %x) #0 section ".rglink.collective" {
  %y = call i32 asm sideeffect "activemask.b32 $0;", "=r"()
  ret i32 %y
}
define i32 @user(i32 %x) {
  %y = call i32 @ballot(i32 %x) #1
  ret i32 %y
}
attributes #0 = { noinline "target-cpu"="sm_75" }
attributes #1 = { noinline }
"""
    )
    module, counts, _ = marked(text)
    assert counts.collective_functions == 1
    module.run("always-inline")
    user = module.text()[module.text().index("@user") :]
    assert "@ballot" not in user.split("}")[0]
    assert "activemask" in user.split("}")[0]
