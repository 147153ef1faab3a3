"""PTX as Triton writes it: predicated vector accesses in inline assembly, cache policies, asynchronous copies."""

from __future__ import annotations

import numpy as np
import pytest

from rglink.emulate.checks import Checks, launch_checked
from tests.emulate.support import kernel, loaded, module

ADD = module(
    """
.visible .entry add(.param .u64 .ptr .global .align 1 x, .param .u64 .ptr .global .align 1 y,
 .param .u64 .ptr .global .align 1 z, .param .u32 n)
.reqntid 128
{
 .reg .pred %p<2>; .reg .b32 %r<24>; .reg .b64 %rd<12>;
 $L__func_begin0:
 ld.param.b64 %rd4, [x]; ld.param.b64 %rd5, [y]; ld.param.b64 %rd6, [z]; ld.param.b32 %r1, [n];
 mov.u32 %r2, %ctaid.x; shl.b32 %r3, %r2, 9; mov.u32 %r4, %tid.x; shl.b32 %r5, %r4, 2; or.b32 %r6, %r3, %r5;
 setp.lt.s32 %p1, %r6, %r1; mad.wide.s32 %rd1, %r6, 4, %rd4; mad.wide.s32 %rd2, %r6, 4, %rd5;
 mad.wide.s32 %rd3, %r6, 4, %rd6;
 // begin inline asm
 mov.u64 %rd7, 0x0;
 createpolicy.fractional.L2::evict_last.b64 %rd7, 1.0;
 // end inline asm
 // begin inline asm
 mov.u32 %r7, 0x0; mov.u32 %r8, 0x0; mov.u32 %r9, 0x0; mov.u32 %r10, 0x0;
 @%p1 ld.global.L1::evict_last.L2::cache_hint.v4.b32 { %r7, %r8, %r9, %r10 }, [ %rd1 + 0 ], %rd7;
 // end inline asm
 // begin inline asm
 mov.u32 %r11, 0x0; mov.u32 %r12, 0x0; mov.u32 %r13, 0x0; mov.u32 %r14, 0x0;
 @%p1 ld.global.v4.b32 { %r11, %r12, %r13, %r14 }, [ %rd2 + 0 ];
 // end inline asm
 add.f32 %r15, %r7, %r11; add.f32 %r16, %r8, %r12; add.f32 %r17, %r9, %r13; add.f32 %r18, %r10, %r14;
 // begin inline asm
 @%p1 st.global.L2::cache_hint.v4.b32 [ %rd3 + 0 ], { %r15, %r16, %r17, %r18 }, %rd7;
 // end inline asm
 ret;
 $L__func_end0:
}
""",
    version="8.7",
)


def test_an_addition_with_a_ragged_end() -> None:
    program = loaded(ADD)
    source = np.random.default_rng(1)
    x, y = source.random(1000, np.float32), source.random(1000, np.float32)
    z = np.zeros(1024, np.float32)
    launch_checked(program["add"], 2, 128, (x, y, z, 1000), Checks(schedules=2))
    assert (z[:1000] == x + y).all()
    assert (z[1000:] == 0).all()


def test_atomics_with_a_cache_policy() -> None:
    body = """
    ld.param.u64 %rd0, [out]; createpolicy.fractional.L2::evict_first.b64 %rd1, 1.0; mov.b32 %f0, 0f3FC00000;
    mov.pred %p0, 1; @%p0 red.global.gpu.relaxed.add.L2::cache_hint.f32 [ %rd0 + 0 ], %f0, %rd1;
    atom.global.gpu.acq_rel.add.L2::cache_hint.u32 %r0, [ %rd0 + 4 ], 3, %rd1; st.global.b32 [%rd0+8], %r0;
    """
    out = np.zeros(3, np.float32)
    loaded(kernel(body))["k"][1, 1](out)
    assert out[0] == 1.5
    assert out.view(np.uint32)[1:].tolist() == [3, 0]


@pytest.mark.parametrize(("tail", "kept"), [("", 4), (", %r3", 2), (", %p0", 0)])
@pytest.mark.parametrize("policy", [False, True])
def test_asynchronous_copies(tail: str, kept: int, policy: bool) -> None:
    """16 bytes, some of them, or none, with a cache policy behind the operands that say so."""
    hint, operand = (".L2::cache_hint", ", %rd3") if policy else ("", "")
    body = f"""
    .shared .align 16 .b8 tile[16]; ld.param.u64 %rd0, [out]; ld.param.u64 %rd1, [values]; mov.u32 %r3, 8;
    setp.eq.u32 %p0, %r3, 8; createpolicy.fractional.L2::evict_first.b64 %rd3, 1.0; mov.u32 %r2, tile;
    cp.async.cg.shared.global{hint} [ %r2 + 0 ], [ %rd1 + 0 ], 0x10{tail}{operand}; cp.async.commit_group;
    cp.async.wait_group 0x0; ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [tile];
    st.global.v4.u32 [%rd0], {{%r4, %r5, %r6, %r7}};
    """
    values, out = np.array([5, 6, 7, 8], np.uint32), np.ones(4, np.uint32)
    loaded(kernel(body, ".param .u64 out, .param .u64 values"))["k"][1, 1](out, values)
    assert out.tolist() == [*[5, 6, 7, 8][:kept], *[0] * (4 - kept)]
