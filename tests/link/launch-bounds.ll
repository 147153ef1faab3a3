; Launch bounds reach the PTX on both routes.
; RUN: rglink a.ll -o one.ptx
; RUN: show one.ptx
; RUN: rglink a.ll -o two.ptx --codegen=nvvm
; RUN: show two.ptx

; CHECK-LABEL: .entry k(
; CHECK: .maxntid 128
; CHECK: .minnctapersm 2
; CHECK-LABEL: .entry k(
; CHECK: .maxntid 128
; CHECK: .minnctapersm 2

;--- a.ll
target triple = "nvptx64-nvidia-cuda"
define ptx_kernel void @k(ptr %out) #0 {
  store i32 5, ptr %out
  ret void
}
attributes #0 = { "nvvm.maxntid"="128,1,1" "nvvm.minctasm"="2" }
