"""Debug info becomes line directives, or goes, without a trace that costs speed or ends LLVM."""

from __future__ import annotations

import re

from rglink.ir import Module
from rglink.irtext import ModuleText
from rglink.lto.debuginfo import has_line_tables, strip_debug, to_line_directives
from tests.lto.ptx import assemble

PROGRAM = """target triple = "nvptx64-nvidia-cuda"
@COUNT = global i32 0, !dbg !30
define ptx_kernel void @k(ptr %p, i32 %n) !dbg !4 {
entry:
    #dbg_value(i32 %n, !10, !DIExpression(), !5)
  br label %head, !dbg !5
head:
  %i = phi i32 [ 0, %entry ], [ %j, %head ]
    #dbg_value(i32 %i, !11, !DIExpression(), !5)
  %x = load volatile i32, ptr %p, !dbg !6
  store i32 %x, ptr @COUNT, !dbg !6
  %j = add i32 %i, 1, !dbg !6
  %c = icmp slt i32 %j, %n, !dbg !6
  br i1 %c, label %head, label %done, !dbg !6, !llvm.loop !20
done:
  ret void, !dbg !5
}
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!3, !8, !9}
!0 = distinct !DICompileUnit(language: DW_LANG_Rust, file: !1, producer: "rustc", isOptimized: true, runtimeVersion: 0, emissionKind: FullDebug, enums: !32, globals: !33, splitDebugInlining: false)
!1 = !DIFile(filename: "src/lib.rs", directory: "/x", checksumkind: CSK_MD5, checksum: "0123456789abcdef0123456789abcdef")
!2 = !DISubroutineType(types: !13)
!3 = !{i32 2, !"Debug Info Version", i32 3}
!4 = distinct !DISubprogram(name: "k", linkageName: "k", scope: !1, file: !1, line: 3, type: !2, scopeLine: 3, flags: DIFlagPrototyped, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !0, templateParams: !13, retainedNodes: !12)
!5 = !DILocation(line: 7, column: 3, scope: !4)
!6 = !DILocation(line: 21, column: 9, scope: !40, inlinedAt: !5)
!7 = !DIBasicType(name: "u32", size: 32, encoding: DW_ATE_unsigned)
!8 = !{i32 2, !"Dwarf Version", i32 4}
!9 = !{i32 8, !"PIC Level", i32 2}
!10 = !DILocalVariable(name: "n", arg: 2, scope: !4, file: !1, line: 3, type: !7)
!11 = !DILocalVariable(name: "i", scope: !4, file: !1, line: 4, type: !7)
!12 = !{!10, !11}
!13 = !{}
!20 = distinct !{!20, !5, !6, !21}
!21 = !{!"llvm.loop.mustprogress"}
!30 = !DIGlobalVariableExpression(var: !31, expr: !DIExpression())
!31 = distinct !DIGlobalVariable(name: "COUNT", scope: !1, file: !1, line: 1, type: !7, isLocal: false, isDefinition: true)
!32 = !{!34}
!33 = !{!30}
!34 = !DICompositeType(tag: DW_TAG_enumeration_type, name: "E", file: !1, size: 8, elements: !13)
!40 = distinct !DISubprogram(name: "inner", scope: !1, file: !1, line: 20, type: !2, scopeLine: 20, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !0)
"""  # noqa: E501


def parsed() -> ModuleText:
    module = Module.parse_text(PROGRAM, "test")
    module.verify()
    return ModuleText.parse(module.text())


def reparsed(text: ModuleText) -> Module:
    module = Module.parse_text(text.render(), "test")
    module.verify()
    return module


def test_line_directives_keep_lines_and_what_was_inlined() -> None:
    text = parsed()
    assert has_line_tables(text)
    to_line_directives(text)
    module = reparsed(text)
    assert has_line_tables(ModuleText.parse(module.text()))
    for gone in ("FullDebug", "retainedNodes", "#dbg_", "DILocalVariable", "DIGlobalVariable", "DICompositeType"):
        assert gone not in module.text()
    ptx = assemble(module.text(), "sm_80")
    assert ", debug" not in ptx
    assert set(re.findall(r"\.section\s+(\S+)", ptx)) == {".debug_macinfo"}  # an empty one
    lines = {tuple(line.split()[1:3]) for line in ptx.splitlines() if line.strip().startswith(".loc")}
    assert {("1", "7"), ("1", "21")} <= lines


def test_code_is_the_same_with_line_directives_as_without() -> None:
    with_lines, without = parsed(), parsed()
    to_line_directives(with_lines)
    strip_debug(without)
    loose, tight = (assemble(reparsed(text).text(), "sm_80") for text in (with_lines, without))
    assert _code(loose) == _code(tight)


def _code(ptx: str) -> list[str]:
    lines = (line.split("//")[0].strip() for line in ptx.splitlines())
    words = (".file", ".loc", ".section", "{", "}", "$L__tmp", "$L__func", ".version", "$L__info")
    return [line for line in lines if line and not line.startswith(words)]


def test_nothing_is_left_when_stripped() -> None:
    text = parsed()
    strip_debug(text)
    module = reparsed(text)
    assert not has_line_tables(ModuleText.parse(module.text()))
    for word in ("!DI", "!dbg", "#dbg_", "llvm.dbg", "Debug Info Version", "Dwarf Version"):
        assert word not in module.text()
    assert "PIC Level" in module.text()
    assert "llvm.loop.mustprogress" in module.text()
    assert ".loc" not in assemble(module.text(), "sm_75")


def test_text_in_strings_is_no_debug_info() -> None:
    ir = 'target triple = "nvptx64-nvidia-cuda"\n@s = global [11 x i8] c"x, !dbg !4\\00"\n'
    text = ModuleText.parse(Module.parse_text(ir, "test").text())
    before = text.render()
    strip_debug(text)
    to_line_directives(text)
    assert text.render() == before
    assert not has_line_tables(text)
