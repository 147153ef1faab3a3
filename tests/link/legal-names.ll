; Globals with names that PTX cannot spell: legal and stable, exported names unchanged.
; RUN: rglink a.ll -o one.fatbin --arch sm_75,compute_75
; RUN: rglink a.ll -o two.fatbin --arch sm_75,compute_75 --codegen=nvvm
; RUN: rglink a.ll -o a.ptx
; RUN: show a.ptx

; CHECK-NOT: anon.
; CHECK-NOT: switch.table
; CHECK: .visible .entry exported(

;--- a.ll
target triple = "nvptx64-nvidia-cuda"
@anon.0f3a.0 = private unnamed_addr constant [4 x i32] [i32 1, i32 2, i32 3, i32 4]
@anon_0f3a_0 = internal global [4 x i32] zeroinitializer
@"switch.table.f<g>" = private constant [4 x i32] [i32 9, i32 8, i32 7, i32 6]
define ptx_kernel void @exported(ptr %out, i64 %i) {
  %p = getelementptr i32, ptr @anon.0f3a.0, i64 %i
  %x = load i32, ptr %p
  %q = getelementptr i32, ptr @"switch.table.f<g>", i64 %i
  %y = load i32, ptr %q
  %r = getelementptr i32, ptr @anon_0f3a_0, i64 %i
  store volatile i32 %x, ptr %r
  %s = add i32 %x, %y
  store i32 %s, ptr %out
  ret void
}
