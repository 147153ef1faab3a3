; A global initialised with its own address: a ring that is live is refused, one that is dead is gone without a word.
; RUN(1): rglink live.ll -o app.fatbin
; RUN: rglink dead.ll -o app.fatbin

; CHECK: rglink: error: statics are initialised with each other's addresses in a ring, which PTX cannot express
; CHECK-NEXT: >>> A
; CHECK-NEXT: >>> B
; CHECK-NEXT: >>> help:
; CHECK-NOT: error

;--- live.ll
target triple = "nvptx64-nvidia-cuda"
@A = internal global ptr @B
@B = internal global [2 x ptr] [ptr null, ptr @A]
define ptx_kernel void @k(ptr %out) {
  %p = load volatile ptr, ptr @A
  store ptr %p, ptr %out
  ret void
}
;--- dead.ll
target triple = "nvptx64-nvidia-cuda"
@A = internal global ptr @A
define ptx_kernel void @k(ptr %out) {
  store i32 1, ptr %out
  ret void
}
