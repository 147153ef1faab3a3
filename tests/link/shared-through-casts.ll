; Two shared statics reached through casts, one written in a data-dependent branch: no generic access to an offset
; within shared memory.
; RUN: rglink a.ll -o app.ptx
; RUN: show app.ptx

; CHECK-LABEL: .entry k(
; CHECK-NOT: {{[[:space:]](ld|st)\.(b|u|s|f)[0-9]+}}
; CHECK: st.shared
; CHECK: ld.shared
; CHECK: ret;

;--- a.ll
target triple = "nvptx64-nvidia-cuda"
@A = internal global [4 x i8] undef, section ".rglink.shared", align 4
@B = internal global [4 x i8] undef, section ".rglink.shared", align 4
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
define ptx_kernel void @k(ptr %in, ptr %out) {
entry:
  store i32 0, ptr @A
  %x = load i32, ptr %in
  %c = icmp eq i32 %x, 7
  br i1 %c, label %then, label %done
then:
  store i32 1, ptr @B
  br label %done
done:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %a = load i32, ptr @A
  %b = load i32, ptr @B
  %s = add i32 %a, %b
  store i32 %s, ptr %out
  ret void
}
