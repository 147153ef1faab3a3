; One run, one file: three cubins and one PTX with equal kernel lists.
; RUN: rglink a.ll -o app.fatbin --arch sm_80,sm_90,sm_120,compute_120
; RUN: cuobjdump -lelf -lptx app.fatbin
; RUN: rgdump app.fatbin

; CHECK-DAG: ELF file {{.*}}sm_80
; CHECK-DAG: ELF file {{.*}}sm_90
; CHECK-DAG: ELF file {{.*}}sm_120
; CHECK: PTX file {{.*}}sm_120
; CHECK: entry 3 ptx compute_120
; CHECK: kernels: k

;--- a.ll
target triple = "nvptx64-nvidia-cuda"
define ptx_kernel void @k(ptr %out) {
  store i32 5, ptr %out
  ret void
}
