; Two crates each with a dynamic pool: one pool, the largest alignment, the same bytes in both orders.
; RUN: rglink a.ll b.ll -o one.ptx
; RUN: rglink b.ll a.ll -o two.ptx
; RUN: cmp one.ptx two.ptx
; RUN: show one.ptx

; CHECK: .extern .shared .align 128 .b8 {{.*}}[];
; CHECK-NOT: .extern .shared

;--- a.ll
target triple = "nvptx64-nvidia-cuda"
@POOL = internal global [0 x i8] undef, section ".rglink.shared", align 16
define ptx_kernel void @ka(ptr %out) {
  %v = load volatile i32, ptr @POOL
  store i32 %v, ptr %out
  ret void
}
;--- b.ll
target triple = "nvptx64-nvidia-cuda"
@POOL = internal global [0 x i8] undef, section ".rglink.shared", align 128
define ptx_kernel void @kb(ptr %out) {
  %v = load volatile i32, ptr @POOL
  store i32 %v, ptr %out
  ret void
}
