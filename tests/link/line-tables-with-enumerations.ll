; nvJitLink fails on enumerators in debug info ("Error encountered while compiling"), so types are left out of what
; becomes line directives; lines, and the code, stay.
; RUN: rglink a.ll -o a.fatbin --arch sm_75,sm_90 --codegen=nvvm
; RUN: rglink a.ll -o a.cubin --arch sm_75 --codegen=nvvm
; RUN: nvdisasm -g a.cubin
; RUN: rglink a.ll -o a.ptx --arch sm_75
; RUN: show a.ptx

; CHECK: src/a.rs", line 7
; CHECK: .version 7.0
; CHECK: .target sm_75
; CHECK-NOT: debug
; CHECK: .loc {{[0-9]+}} 7

;--- a.ll
target triple = "nvptx64-nvidia-cuda"
define ptx_kernel void @k(ptr %out, i32 %order) !dbg !5 {
  %x = mul i32 %order, 3, !dbg !14
  store i32 %x, ptr %out, !dbg !14
  ret void, !dbg !14
}
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!1, !2}
!0 = distinct !DICompileUnit(language: DW_LANG_Rust, file: !3, isOptimized: true, runtimeVersion: 0, emissionKind: FullDebug)
!1 = !{i32 2, !"Debug Info Version", i32 3}
!2 = !{i32 2, !"Dwarf Version", i32 4}
!3 = !DIFile(filename: "src/a.rs", directory: ".")
!5 = distinct !DISubprogram(name: "k", linkageName: "k", scope: !6, file: !3, line: 6, type: !7, spFlags: DISPFlagDefinition, unit: !0)
!6 = !DICompositeType(tag: DW_TAG_structure_type, name: "Cell", file: !3, size: 8, align: 8, elements: !10)
!7 = !DISubroutineType(types: !8)
!8 = !{null, !9}
!9 = !DICompositeType(tag: DW_TAG_enumeration_type, name: "Ordering", file: !3, baseType: !11, size: 8, flags: DIFlagEnumClass, elements: !12)
!10 = !{}
!11 = !DIBasicType(name: "u8", size: 8, encoding: DW_ATE_unsigned)
!12 = !{!13}
!13 = !DIEnumerator(name: "Relaxed", value: 0, isUnsigned: true)
!14 = !DILocation(line: 7, column: 3, scope: !5)
