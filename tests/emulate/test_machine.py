"""Blocks, barriers, special registers, asynchronous copies, tensor instructions, and what the machine refuses."""

from __future__ import annotations

import numpy as np
import pytest

from rglink.emulate import KernelFault, PtxError
from tests.emulate.support import PLACE, kernel, loaded


def run(body: str, before: str = "", grid: object = 1, block: object = 96) -> np.ndarray:
    """The words that the threads wrote to `out`."""
    assert isinstance(grid, int | tuple)
    assert isinstance(block, int | tuple)
    out = np.zeros(int(np.prod(grid)) * int(np.prod(block)), np.uint32)
    loaded(kernel(PLACE + body, before=before))["k"].launch(grid, block, (out,))
    return out


SPECIAL = """
ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z; mov.u32 %r3, %ntid.x;
mov.u32 %r4, %ntid.y; mov.u32 %r5, %ntid.z; mov.u32 %r6, %ctaid.x; mov.u32 %r7, %ctaid.y; mov.u32 %r8, %ctaid.z;
mov.u32 %r9, %nctaid.x; mov.u32 %r10, %nctaid.y; mad.lo.u32 %r11, %r2, %r4, %r1; mad.lo.u32 %r11, %r11, %r3, %r0;
mad.lo.u32 %r12, %r8, %r10, %r7; mad.lo.u32 %r12, %r12, %r9, %r6; mul.lo.u32 %r13, %r3, %r4; mul.lo.u32 %r13, %r13, %r5;
mad.lo.u32 %r14, %r12, %r13, %r11; mul.wide.u32 %rd1, %r14, 4; add.u64 %rd0, %rd0, %rd1; mov.u32 %r15, %warpid;
mov.u32 %r16, %laneid; mad.lo.u32 %r15, %r15, 100, %r16; mad.lo.u32 %r15, %r12, 10000, %r15; mov.u32 %r16, %nctaid.z;
mad.lo.u32 %r15, %r16, 1000000, %r15; st.global.u32 [%rd0], %r15;
"""


@pytest.mark.parametrize("wave_lanes", [32, 200, 1 << 15])
def test_places_in_block_and_grid(wave_lanes: int) -> None:
    out = np.zeros(2 * 3 * 2 * 5 * 3 * 4, np.uint32)
    loaded(kernel(SPECIAL))["k"].launch((2, 3, 2), (5, 3, 4), (out,), wave_lanes=wave_lanes)
    thread, block = np.arange(60), np.arange(12)
    expected = 10000 * block[:, None] + (100 * (thread // 32) + thread % 32)[None] + 2000000
    assert (out == expected.reshape(-1)).all()


TREE = """
.shared .align 4 .b8 tile[1024]; mov.u32 %r3, %tid.x; shl.b32 %r4, %r3, 2; mov.u32 %r5, tile; add.u32 %r5, %r5, %r4;
mul.lo.u32 %r6, %r0, %r0; st.shared.u32 [%r5], %r6; bar.sync 0; shr.u32 %r7, %r2, 1;
L: setp.eq.u32 %p0, %r7, 0; @%p0 bra DONE; setp.ge.u32 %p1, %r3, %r7; @%p1 bra SKIP; shl.b32 %r8, %r7, 2;
add.u32 %r9, %r5, %r8; ld.shared.u32 %r10, [%r9]; ld.shared.u32 %r11, [%r5]; add.u32 %r11, %r11, %r10;
st.shared.u32 [%r5], %r11; SKIP: bar.sync 0; shr.u32 %r7, %r7, 1; bra L;
DONE: ld.shared.u32 %r6, [tile]; st.global.u32 [%rd0], %r6;
"""


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_tree_reduction_with_barriers(seed: int | None) -> None:
    out = np.zeros(4 * 128, np.uint32)
    loaded(kernel(PLACE + TREE))["k"].launch(4, 128, (out,), seed=seed)
    squares = (np.arange(512, dtype=np.uint64) ** 2).reshape(4, 128).sum(axis=1)
    assert (out.reshape(4, 128) == squares[:, None]).all()


def test_barriers_by_count_let_producers_and_consumers_meet() -> None:
    """Warp 0 fills a tile and arrives; warp 1 waits for it at barrier 3; warp 2 takes no part."""
    body = """
    .shared .align 4 .b8 tile[128]; mov.u32 %r3, %laneid; shl.b32 %r4, %r3, 2; mov.u32 %r5, tile; add.u32 %r5, %r5, %r4;
    mov.u32 %r6, %warpid; setp.eq.u32 %p0, %r6, 1; @%p0 bra TAKE; setp.eq.u32 %p1, %r6, 2; @%p1 bra END;
    add.u32 %r7, %r3, 500; st.shared.u32 [%r5], %r7; bar.arrive 3, 64; bra END;
    TAKE: bar.sync 3, 64; mov.u32 %r8, tile; sub.u32 %r4, 124, %r4; add.u32 %r8, %r8, %r4; ld.shared.u32 %r9, [%r8];
    st.global.u32 [%rd0], %r9; END:
    """
    for seed in (None, 1, 2, 3):
        out = np.zeros(96, np.uint32)
        loaded(kernel(PLACE + body))["k"].launch(1, 96, (out,), seed=seed)
        assert out[32:64].tolist() == [531 - lane for lane in range(32)]


def test_barriers_that_reduce() -> None:
    body = """
    setp.lt.u32 %p0, %r0, 100; bar.red.popc.u32 %r3, 0, %p0; bar.red.and.pred %p1, 0, %p0; bar.red.or.pred %p2, 0, %p0;
    barrier.cta.red.popc.aligned.u32 %r4, 1, !%p0; selp.b32 %r5, 1000, 0, %p1; selp.b32 %r6, 2000, 0, %p2;
    add.u32 %r3, %r3, %r5; add.u32 %r3, %r3, %r6; mad.lo.u32 %r3, %r4, 10000, %r3; st.global.u32 [%rd0], %r3;
    """
    expected = np.array([64 + 3000, 36 + 2000 + 28 * 10000, 640000])
    for seed in (None, 1):
        out = np.zeros(192, np.uint32)
        loaded(kernel(PLACE + body))["k"].launch(3, 64, (out,), seed=seed)
        assert (out.reshape(3, 64) == expected[:, None]).all()


def test_threads_that_ended_are_not_waited_for() -> None:
    body = """
    setp.ge.u32 %p0, %r0, 50; @%p0 exit; bar.sync 0; bar.red.popc.u32 %r3, 0, 1; st.global.u32 [%rd0], %r3;
    """
    assert run(body).tolist() == [50] * 50 + [0] * 46


def test_a_barrier_that_not_all_reach_is_a_deadlock() -> None:
    body = ".loc 1 5 1\nsetp.ge.u32 %p0, %r0, 40; @%p0 bra B; bar.sync 0; bra END; B: bar.sync 1; END:"
    with pytest.raises(KernelFault, match="deadlock in kernel k: 96 threads") as caught:
        run(body, before='.file 1 "a.rs"')
    assert caught.value.diagnostic.slug == "deadlock"
    assert any("a.rs:5, PTX line" in p and "40 threads wait for barrier 0" in p for p in caught.value.diagnostic.places)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("mov.u32 %r3, 16; bar.sync %r3;", "barrier 16 does not exist, a block has 16"),
        ("mov.u32 %r3, 40; bar.sync 0, %r3;", "barrier waits for 40 threads, wanted a multiple of 32 up to 96"),
    ],
)
def test_barriers_that_cannot_be(body: str, message: str) -> None:
    with pytest.raises(KernelFault, match=message):
        run(body)


ASYNC = """
.shared .align 16 .b8 tile[512]; mov.u32 %r3, %tid.x; shl.b32 %r4, %r3, 4; mov.u32 %r5, tile; add.u32 %r6, %r5, %r4;
ld.param.u64 %rd2, [in]; cvt.u64.u32 %rd3, %r4; add.u64 %rd2, %rd2, %rd3; {copy}
cp.async.commit_group; cp.async.wait_group 0; bar.sync 0; xor.b32 %r4, %r4, 496; add.u32 %r6, %r5, %r4;
ld.shared.u32 %r7, [%r6+8]; st.global.u32 [%rd0], %r7;
"""


@pytest.mark.parametrize(
    ("copy", "limit"),
    [
        ("cp.async.cg.shared.global [%r6], [%rd2], 16;", 32),
        ("cp.async.ca.shared.global.L2::128B [%r6+8], [%rd2+8], 8;", 32),
        ("setp.lt.u32 %p0, %r3, 9; selp.b32 %r8, 16, 4, %p0; cp.async.cg.shared.global [%r6], [%rd2], 16, %r8;", 9),
        ("setp.ge.u32 %p0, %r3, 7; cp.async.ca.shared.global [%r6+8], [%rd2+8], 4, %p0;", 7),
    ],
)
def test_asynchronous_copies(copy: str, limit: int) -> None:
    given, out = np.arange(1, 129, dtype=np.uint32), np.zeros(32, np.uint32)
    program = loaded(kernel(PLACE + ASYNC.format(copy=copy), ".param .u64 out, .param .u64 in"))
    program["k"][1, 32](out, given)
    lane = 31 - np.arange(32)
    assert (out == np.where(lane < limit, given[2::4][lane], 0)).all()


def test_bulk_copies_with_an_mbarrier() -> None:
    body = """
    .shared .align 16 .b8 tile[256]; .shared .align 8 .b64 bar; mov.u32 %r3, %tid.x; setp.ne.u32 %p0, %r3, 0;
    mov.u32 %r5, tile; mov.u32 %r6, bar; ld.param.u64 %rd2, [in]; ld.param.u64 %rd9, [back];
    @!%p0 mbarrier.init.shared::cta.b64 [%r6], 1; bar.sync 0; @%p0 bra WAIT;
    mbarrier.arrive.expect_tx.shared::cta.b64 %rd4, [%r6], 256;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%rd2], 256, [%r6];
    WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r6], 0; @!%p1 bra WAIT;
    shl.b32 %r4, %r3, 2; add.u32 %r7, %r5, %r4; ld.shared.u32 %r8, [%r7]; add.u32 %r8, %r8, 1; st.shared.u32 [%r7], %r8;
    st.global.u32 [%rd0], %r8; fence.proxy.async.shared::cta; bar.sync 0; @%p0 bra END;
    cp.async.bulk.global.shared::cta.bulk_group [%rd9], [%r5], 256; cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0; END:
    """
    given, out, back = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    program = loaded(kernel(PLACE + body, ".param .u64 out, .param .u64 in, .param .u64 back"))
    program["k"][1, 64](out, given, back)
    assert (out == given + 1).all()
    assert (back == given + 1).all()


def test_mbarrier_phases() -> None:
    """Four phases: every thread's arrival counts, and nobody passes before the last one."""
    body = """
    .shared .align 8 .b64 bar; .shared .align 4 .u32 sum; mov.u32 %r3, %tid.x; setp.eq.u32 %p0, %r3, 0;
    @%p0 mbarrier.init.shared.b64 [bar], 96; @%p0 st.shared.u32 [sum], 0; bar.sync 0; mov.u32 %r4, 0; mov.u32 %r5, 0;
    L: atom.shared.add.u32 %r6, [sum], 1; mbarrier.arrive.shared.b64 %rd2, [bar];
    W: mbarrier.test_wait.shared.b64 %p1, [bar], %rd2; @!%p1 bra W; ld.volatile.shared.u32 %r6, [sum];
    add.u32 %r5, %r5, %r6; bar.sync 0; add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 4; @%p2 bra L;
    st.global.u32 [%rd0], %r5;
    """
    for seed in (None, 1):
        out = np.zeros(96, np.uint32)
        loaded(kernel(PLACE + body))["k"].launch(1, 96, (out,), seed=seed)
        assert (out == 96 * (1 + 2 + 3 + 4)).all()


def test_a_matrix_product_through_ldmatrix() -> None:
    """16x16 times 16x8 halves from shared memory: what every lane computes equals NumPy's product."""
    body = """
    .shared .align 16 .b8 a[512]; .shared .align 16 .b8 b[256]; mov.u32 %r3, %tid.x; ld.param.u64 %rd2, [in];
    mul.wide.u32 %rd3, %r3, 8; add.u64 %rd2, %rd2, %rd3; shl.b32 %r4, %r3, 3; mov.u32 %r5, a; add.u32 %r6, %r5, %r4;
    ld.global.b64 %rd4, [%rd2]; st.shared.b64 [%r6], %rd4; ld.global.b64 %rd4, [%rd2+256];
    st.shared.b64 [%r6+256], %rd4;
    mov.u32 %r7, b; add.u32 %r8, %r7, %r4; ld.global.b64 %rd4, [%rd2+512]; st.shared.b64 [%r8], %rd4; bar.sync 0;
    and.b32 %r9, %r3, 15; shl.b32 %r9, %r9, 5; shr.u32 %r10, %r3, 4; shl.b32 %r10, %r10, 4; add.u32 %r9, %r9, %r10;
    add.u32 %r9, %r9, %r5; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r11, %r12, %r13, %r14}, [%r9];
    and.b32 %r9, %r3, 15; shl.b32 %r9, %r9, 4; add.u32 %r9, %r9, %r7;
    ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r15, %r16}, [%r9]; mov.f32 %f0, 0f00000000;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r11, %r12, %r13, %r14}, {%r15, %r16},
      {%f0, %f0, %f0, %f0};
    ld.param.u64 %rd0, [out]; shr.u32 %r17, %r3, 2; and.b32 %r18, %r3, 3; shl.b32 %r19, %r17, 5; shl.b32 %r20, %r18, 3;
    add.u32 %r19, %r19, %r20; cvt.u64.u32 %rd5, %r19; add.u64 %rd0, %rd0, %rd5; st.global.v2.f32 [%rd0], {%f1, %f2};
    st.global.v2.f32 [%rd0+256], {%f3, %f4};
    """
    given = np.random.default_rng(5).integers(-8, 8, 16 * 16 + 16 * 8).astype(np.float16)
    out = np.zeros((16, 8), np.float32)
    loaded(kernel(body, ".param .u64 out, .param .u64 in"))["k"][1, 32](out, given)
    a, b = given[:256].reshape(16, 16).astype(np.float32), given[256:].reshape(16, 8).astype(np.float32)
    assert (out == a @ b).all()


LAST_TO_ARRIVE = """
mov.u32 %r3, %tid.x; setp.ne.u32 %p0, %r3, 0; @%p0 bra END; ld.param.u64 %rd3, [out];
atom.relaxed.gpu.global.add.u32 %r4, [%rd3], 1; ld.relaxed.gpu.global.u32 %r5, [%rd3]; st.global.u32 [%rd0+4], %r5;
END:
"""


def test_a_seed_may_hold_blocks_back() -> None:
    """In the default order all blocks count before any reads; an order of turns shows that a block may be early."""
    read = []
    for seed in (None, *range(1, 9)):
        out = np.zeros(6 * 32, np.uint32)
        loaded(kernel(PLACE + LAST_TO_ARRIVE))["k"].launch(6, 32, (out,), seed=seed)
        read.append(out[1::32].tolist())
    assert read[0] == [6] * 6
    assert min(min(each) for each in read) < 6


def test_a_block_that_waits_for_one_held_back() -> None:
    """Every block waits until all have come."""
    body = """
    ld.param.u64 %rd3, [out]; mov.u32 %r3, %tid.x; setp.ne.u32 %p0, %r3, 0; @%p0 bra END;
    atom.relaxed.gpu.global.add.u32 %r4, [%rd3], 1;
    L: ld.relaxed.gpu.global.u32 %r5, [%rd3]; setp.lt.u32 %p1, %r5, 6; @%p1 bra L; st.global.u32 [%rd0+4], %r5; END:
    """
    for seed in range(1, 9):
        out = np.zeros(6 * 32, np.uint32)
        loaded(kernel(PLACE + body))["k"].launch(6, 32, (out,), seed=seed)
        assert out[1::32].tolist() == [6] * 6


def test_the_last_operand_of_a_mixed_addition_is_wide() -> None:
    body = """
    .reg .b16 %h; cvt.rn.f16.u32 %h, %r0; mov.b32 %r3, 0f3F000000; add.rn.f32.f16 %r4, %h, %r3;
    fma.rn.f32.f16 %r5, %h, %h, %r4; st.global.b32 [%rd0], %r5;
    """
    out, lane = np.zeros(96, np.float32), np.arange(96)
    loaded(kernel(PLACE + body, target="sm_100"))["k"].launch(1, 96, (out,))
    assert (out == lane * lane + lane + 0.5).all()


def test_carries_chain_through_the_flag() -> None:
    body = """
    mov.u32 %r3, 0xFFFFFFFF; add.cc.u32 %r4, %r0, %r3; addc.cc.u32 %r5, 0, 5; addc.u32 %r6, 0, 0;
    sub.cc.u32 %r7, %r0, 1; subc.u32 %r8, 10, 0; mad.lo.cc.u32 %r9, %r0, %r3, %r0; madc.hi.u32 %r9, %r0, %r3, 0;
    mad.lo.u32 %r5, %r5, 100, %r8; mad.lo.u32 %r5, %r6, 10000, %r5; mad.lo.u32 %r5, %r9, 100000, %r5;
    st.global.u32 [%rd0], %r5;
    """
    lane = np.arange(96)
    carry = lane > 0
    borrow = lane < 1
    product = lane * 0xFFFFFFFF
    high = (product >> 32) + ((product & 0xFFFFFFFF) + lane >= 2**32)
    assert (run(body) == 100 * (5 + carry) + 10 - borrow + 100000 * high).all()


def test_moves_pack_and_unpack() -> None:
    body = """
    .reg .b128 %q; mov.b64 %rd2, {%r0, 7}; mov.b64 {%r3, %r4}, %rd2; cvt.u16.u32 %h0, %r0; mov.b32 %r5, {%h0, %h0};
    mov.b32 {_, %h1}, %r5; mov.b128 %q, {%rd2, 5}; mov.b128 {%rd3, %rd4}, %q; cvt.u32.u64 %r6, %rd4;
    cvt.u32.u16 %r7, %h1; mad.lo.u32 %r3, %r4, 1000, %r3; mad.lo.u32 %r3, %r6, 10000, %r3;
    mad.lo.u32 %r3, %r7, 100000, %r3; st.global.u32 [%rd0], %r3;
    """
    lane = np.arange(96)
    assert (run(body) == lane + 7000 + 50000 + 100000 * lane).all()


def test_clocks_go_on() -> None:
    body = """
    mov.u64 %rd2, %clock64; mov.u64 %rd3, %globaltimer; nanosleep.u32 100; mov.u64 %rd4, %globaltimer;
    mov.u64 %rd5, %clock64; setp.gt.u64 %p0, %rd4, %rd3; setp.gt.and.u64 %p0, %rd5, %rd2, %p0; selp.b32 %r3, 1, 0, %p0;
    st.global.u32 [%rd0], %r3;
    """
    assert run(body).all()


def test_an_unknown_instruction_is_refused_when_a_thread_comes_to_it() -> None:
    body = "setp.gt.u32 %p0, %r0, 1000; @!%p0 bra END; vadd4.u32.u32.u32 %r3, %r0, %r0, %r0;"
    body += "\nEND: st.global.u32 [%rd0], 4;"
    text = kernel(PLACE + body)
    program = loaded(text)
    out = np.zeros(96, np.uint32)
    program["k"][1, 96](out)
    assert (out == 4).all(), "no thread came there"
    line = 1 + text[: text.index("vadd4")].count("\n")
    with pytest.raises(PtxError, match=rf"line {line}: in k: unsupported instruction vadd4.u32.u32.u32") as caught:
        program["k"][11, 96](np.zeros(11 * 96, np.uint32))
    assert caught.value.diagnostic.slug == "unsupported-instruction"


def test_a_negated_predicate_at_two_barriers() -> None:
    body = """
    mov.u32 %r3, %tid.x; shr.u32 %r4, %r3, 5; setp.lt.u32 %p0, %r3, 40; barrier.red.popc.u32 %r5, %r4, 32, !%p0;
    st.global.u32 [%rd0], %r5;
    """
    out = np.zeros(64, np.uint32)
    loaded(kernel(PLACE + body))["k"][1, 64](out)
    assert out.tolist() == [0] * 32 + [24] * 32


@pytest.mark.parametrize(("options", "nan_wins"), [("", False), (".NaN", True)])
def test_extremes_of_three_numbers(options: str, nan_wins: bool) -> None:
    body = f"""
    ld.param.u64 %rd2, [values]; mul.wide.u32 %rd3, %r0, 12; add.u64 %rd2, %rd2, %rd3; ld.global.f32 %f0, [%rd2];
    ld.global.f32 %f1, [%rd2+4]; ld.global.f32 %f2, [%rd2+8]; min{options}.f32 %f3, %f0, %f1, %f2;
    max{options}.f32 %f4, %f0, %f1, %f2; sub.f32 %f3, %f4, %f3; st.global.f32 [%rd0], %f3;
    """
    values, out = np.random.default_rng(2).standard_normal((32, 3)).astype(np.float32), np.zeros(32, np.float32)
    values[3, 1] = values[4, 2] = np.nan
    text = kernel(PLACE + body, ".param .u64 out, .param .u64 values", target="sm_100")
    loaded(text.replace(".version 8.6", ".version 8.8"))["k"][1, 32](out, values)
    least, most = (np.minimum, np.maximum) if nan_wins else (np.fmin, np.fmax)
    assert np.array_equal(out, most.reduce(values, axis=1) - least.reduce(values, axis=1), equal_nan=True)
