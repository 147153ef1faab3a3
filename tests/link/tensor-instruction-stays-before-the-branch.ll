; LLVM 22 does not mark mma convergent: it must not be sunk into the branch that alone uses its result.
; RUN: rglink a.ll -o llvm.ptx --arch compute_80
; RUN: show llvm.ptx
; RUN: rglink a.ll -o nvvm.ptx --arch compute_80 --codegen=nvvm
; RUN: show nvvm.ptx
; RUN: rglink a.ll -o none.ptx --arch compute_80 -O0
; RUN: show none.ptx

; CHECK-LABEL: .entry k(
; CHECK-NOT: bra
; CHECK: mma.sync.aligned
; CHECK: bra
; CHECK-LABEL: .entry k(
; CHECK-NOT: bra
; CHECK: mma.sync.aligned
; CHECK: bra
; CHECK-LABEL: .entry k(
; CHECK-NOT: bra
; CHECK: mma.sync.aligned
; CHECK: bra

;--- a.ll
target triple = "nvptx64-nvidia-cuda"
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare { float, float, float, float } @llvm.nvvm.mma.m16n8k8.row.col.tf32(i32, i32, i32, i32, i32, i32, float, float, float, float)
define ptx_kernel void @k(ptr %out, i32 %a, float %c) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %d = call { float, float, float, float } @llvm.nvvm.mma.m16n8k8.row.col.tf32(i32 %a, i32 %a, i32 %a, i32 %a, i32 %a, i32 %a, float %c, float %c, float %c, float %c)
  %low = icmp ult i32 %t, 4
  br i1 %low, label %then, label %done
then:
  %x = extractvalue { float, float, float, float } %d, 0
  %i = zext i32 %t to i64
  %p = getelementptr float, ptr %out, i64 %i
  store float %x, ptr %p
  br label %done
done:
  ret void
}
