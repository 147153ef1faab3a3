; Ordering and scope of atomics reach the PTX exactly, on both codegen routes.
; RUN: rglink a.ll -o llvm.ptx --arch compute_80
; RUN: show llvm.ptx
; RUN: rglink a.ll -o nvvm.ptx --arch compute_80 --codegen=nvvm
; RUN: show nvvm.ptx

; CHECK-LABEL: .entry k(
; CHECK: fence.sc.sys
; CHECK: atom.acquire.sys{{.*}}add.u32
; CHECK: atom.acq_rel.cta{{.*}}add.u32
; CHECK: atom.acq_rel.sys{{.*}}cas.b32
; CHECK: ld.acquire.sys
; CHECK: st.release.gpu
; CHECK: fence.sc.sys

; CHECK-LABEL: .entry k(
; CHECK: fence.sc.sys
; CHECK: atom.acquire.sys{{.*}}add.u32
; CHECK: atom.acq_rel.cta{{.*}}add.u32
; CHECK: atom.acq_rel.sys{{.*}}cas.b32
; CHECK: ld.acquire.sys
; CHECK: st.release.gpu
; CHECK: fence.sc.sys

;--- a.ll
target triple = "nvptx64-nvidia-cuda"
define ptx_kernel void @k(ptr %p, ptr %out) {
  %a = atomicrmw add ptr %p, i32 1 seq_cst
  %b = atomicrmw add ptr %p, i32 2 syncscope("block") acq_rel
  %c = cmpxchg ptr %p, i32 3, i32 4 acq_rel monotonic
  %d = load atomic i32, ptr %p acquire, align 4
  store atomic i32 5, ptr %p syncscope("device") release, align 4
  fence seq_cst
  %s = add i32 %a, %b
  %t = add i32 %s, %d
  store i32 %t, ptr %out
  ret void
}
