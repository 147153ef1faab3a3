; Foreign IR marks kernels by metadata (NVVM IR specification, "Annotations"); LLVM 22 reads the calling convention only.
; RUN: rglink a.ll -o app.ptx
; RUN: show app.ptx

; CHECK: .visible .entry old(

;--- a.ll
target triple = "nvptx64-nvidia-cuda"
define void @old(ptr %out) {
  store i32 1, ptr %out
  ret void
}
!nvvm.annotations = !{!0}
!0 = !{ptr @old, !"kernel", i32 1}
