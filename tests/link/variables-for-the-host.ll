; Exported statics stay visible to the host: one that no kernel reads, and one that kernels only write.
; RUN: rglink a.ll -o app.fatbin --arch sm_75,sm_90 --codegen=llvm
; RUN: rgdump app.fatbin
; RUN: rglink a.ll -o app.fatbin --arch sm_75,sm_90 --codegen=nvvm
; RUN: rgdump app.fatbin

; CHECK: arch: sm_75
; CHECK: TABLE global global 16
; CHECK: WRITTEN global global 4
; CHECK: arch: sm_90
; CHECK: TABLE global global 16
; CHECK: WRITTEN global global 4
; CHECK: arch: sm_75
; CHECK: TABLE global global 16
; CHECK: WRITTEN global global 4
; CHECK: arch: sm_90
; CHECK: TABLE global global 16
; CHECK: WRITTEN global global 4

;--- a.ll
target triple = "nvptx64-nvidia-cuda"
@TABLE = constant [4 x i32] [i32 1, i32 2, i32 3, i32 4]
@WRITTEN = global i32 0
@unused_local = internal global i32 0
define ptx_kernel void @k(ptr %out) {
  store i32 5, ptr @WRITTEN
  ret void
}
