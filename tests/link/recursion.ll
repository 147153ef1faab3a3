; A recursive device function links, with one warning per ring.
; RUN: rglink a.ll -o app.fatbin --arch sm_75 --print-resources
; RUN(1): rglink a.ll -o app.fatbin --arch sm_75 --deny=recursive-function

; CHECK: rglink: warning: recursive functions: even, odd; their stack size is unknown [recursive-function]
; CHECK-NOT: warning
; CHECK: rglink: error: recursive functions: even, odd; their stack size is unknown [recursive-function]

;--- a.ll
target triple = "nvptx64-nvidia-cuda"
define internal i32 @even(i32 %n) noinline {
  %z = icmp eq i32 %n, 0
  br i1 %z, label %yes, label %more
yes:
  ret i32 1
more:
  %m = sub i32 %n, 1
  %r = call i32 @odd(i32 %m)
  %q = add i32 %r, %n
  ret i32 %q
}
define internal i32 @odd(i32 %n) noinline {
  %z = icmp eq i32 %n, 0
  br i1 %z, label %no, label %more
no:
  ret i32 0
more:
  %m = sub i32 %n, 1
  %r = call i32 @even(i32 %m)
  %q = mul i32 %r, %n
  ret i32 %q
}
define ptx_kernel void @k(ptr %out, i32 %n) {
  %r = call i32 @even(i32 %n)
  store i32 %r, ptr %out
  ret void
}
