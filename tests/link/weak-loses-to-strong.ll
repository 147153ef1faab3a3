; The strong definition prevails over a weak one, whatever the order.
; RUN: rglink a.ll b.ll -o one.ll
; RUN: show one.ll
; RUN: rglink b.ll a.ll -o two.ll
; RUN: show two.ll

; CHECK: store i32 42
; CHECK-NOT: store i32 7
; CHECK: store i32 42
; CHECK-NOT: store i32 7

;--- a.ll
target triple = "nvptx64-nvidia-cuda"
define weak i32 @f() {
  ret i32 7
}
define ptx_kernel void @k(ptr %out) {
  %x = call i32 @f()
  store i32 %x, ptr %out
  ret void
}
;--- b.ll
target triple = "nvptx64-nvidia-cuda"
define i32 @f() {
  ret i32 42
}
