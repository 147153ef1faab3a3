; A module with aliases, called through both names, on both routes.
; RUN: rglink a.ll -o llvm.fatbin --arch sm_75,sm_90
; RUN: rglink a.ll -o nvvm.fatbin --arch sm_75,sm_90 --codegen=nvvm
; RUN: rglink a.ll -o out.ptx -O0
; RUN: show out.ptx

; CHECK: .visible .entry k(
; CHECK: call{{.*}}real
; CHECK: call{{.*}}real

;--- a.ll
target triple = "nvptx64-nvidia-cuda"
@other = alias i32 (i32), ptr @real
define i32 @real(i32 %x) noinline {
  %y = mul i32 %x, 3
  ret i32 %y
}
define ptx_kernel void @k(ptr %out, i32 %x) {
  %a = call i32 @real(i32 %x)
  %b = call i32 @other(i32 %a)
  store i32 %b, ptr %out
  ret void
}
