; A kernel is found by its calling convention, whatever its visibility and without `@llvm.used`.
; RUN: rglink a.ll -o app.fatbin --arch sm_75,sm_90,compute_75
; RUN: cuobjdump -symbols app.fatbin
; RUN: rglink a.ll -o app2.fatbin --arch sm_75,sm_90 --codegen=nvvm
; RUN: cuobjdump -symbols app2.fatbin

; CHECK: arch = sm_75
; CHECK-DAG: ENTRY {{ *}} hidden_one
; CHECK-DAG: ENTRY {{ *}} plain
; CHECK-DAG: ENTRY {{ *}} local_one
; CHECK: arch = sm_90
; CHECK-DAG: ENTRY {{ *}} hidden_one
; CHECK-DAG: ENTRY {{ *}} plain
; CHECK-DAG: ENTRY {{ *}} local_one
; CHECK: arch = sm_75
; CHECK-DAG: ENTRY {{ *}} hidden_one
; CHECK-DAG: ENTRY {{ *}} plain
; CHECK-DAG: ENTRY {{ *}} local_one

;--- a.ll
target triple = "nvptx64-nvidia-cuda"
define ptx_kernel void @plain(ptr %out) {
  store i32 1, ptr %out
  ret void
}
define hidden ptx_kernel void @hidden_one(ptr %out) {
  store i32 2, ptr %out
  ret void
}
define internal ptx_kernel void @local_one(ptr %out) {
  store i32 3, ptr %out
  ret void
}
