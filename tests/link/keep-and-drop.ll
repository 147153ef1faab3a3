; `--keep` is exclusive, `--drop` removes, and what went is told by name.
; RUN: rglink a.ll -o app.fatbin --arch sm_75 --keep 'solve*' --drop solve_old --print-gc
; RUN: cuobjdump -symbols app.fatbin
; RUN: rglink a.ll -o app.fatbin --arch sm_75 --kernels-from list.txt --print-gc
; RUN: rglink a.ll -o app.fatbin --arch sm_75 --why-live shared_part

; CHECK: kernel debug in a.ll (crate a): no --keep pattern matches it
; CHECK: kernel solve_old in a.ll (crate a): --drop solve_old
; CHECK: function only_old in a.ll (crate a): no root reaches it
; CHECK: kernel solve in a.ll (crate a): kernel
; CHECK: function shared_part in a.ll (crate a): from solve
; CHECK-NOT: ENTRY {{ *}} debug
; CHECK: ENTRY {{ *}} solve
; CHECK-NOT: ENTRY {{ *}} solve_old
; CHECK: kernel solve in a.ll (crate a): --kernels-from does not name it
; CHECK: kernel solve_old in a.ll (crate a): --kernels-from does not name it
; CHECK: kernel debug in a.ll (crate a): kernel
; CHECK: shared_part is live:
; CHECK-NEXT: solve in a.ll (crate a) (kernel)
; CHECK-NEXT: shared_part in a.ll (crate a)

;--- list.txt
# what the host uses
debug
;--- a.ll
target triple = "nvptx64-nvidia-cuda"
define void @shared_part(ptr %out) noinline {
  store i32 1, ptr %out
  ret void
}
define void @only_old(ptr %out) noinline {
  store i32 2, ptr %out
  ret void
}
define ptx_kernel void @solve(ptr %out) {
  call void @shared_part(ptr %out)
  ret void
}
define ptx_kernel void @solve_old(ptr %out) {
  call void @only_old(ptr %out)
  ret void
}
define ptx_kernel void @debug(ptr %out) {
  store i32 3, ptr %out
  ret void
}
