; Two modules each with a private shared array of one name: two arrays, two kernels, a good link.
; RUN: rglink a.ll b.ll -o app.fatbin --arch sm_80 --print-resources=json
; RUN: rglink a.ll b.ll -o app.ptx --arch sm_80
; RUN: show app.ptx

; CHECK: "kernel": "ka"
; CHECK: "shared": 256
; CHECK: "kernel": "kb"
; CHECK: "shared": 512
; CHECK-DAG: .shared .align 4 .b8 {{.*}}[256];
; CHECK-DAG: .shared .align 4 .b8 {{.*}}[512];

;--- a.ll
target triple = "nvptx64-nvidia-cuda"
@TILE = internal global [256 x i8] undef, section ".rglink.shared", align 4
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
define ptx_kernel void @ka(ptr %out) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %i = zext i32 %t to i64
  %p = getelementptr i32, ptr @TILE, i64 %i
  store volatile i32 %t, ptr %p
  %v = load volatile i32, ptr %p
  store i32 %v, ptr %out
  ret void
}
;--- b.ll
target triple = "nvptx64-nvidia-cuda"
@TILE = internal global [512 x i8] undef, section ".rglink.shared", align 4
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
define ptx_kernel void @kb(ptr %out) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %i = zext i32 %t to i64
  %p = getelementptr i32, ptr @TILE, i64 %i
  store volatile i32 %t, ptr %p
  %v = load volatile i32, ptr %p
  store i32 %v, ptr %out
  ret void
}
