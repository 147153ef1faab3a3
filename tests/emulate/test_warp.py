"""Warp-wide instructions against their definitions, lane by lane."""

from __future__ import annotations

import numpy as np
import pytest

from rglink.emulate import KernelFault
from tests.emulate.support import PLACE, kernel, loaded

LANES = np.arange(96, dtype=np.uint32)


def run(body: str, block: int = 96, seed: int | None = None) -> np.ndarray:
    """The words that the threads wrote to `out`."""
    out = np.zeros(block, np.uint32)
    loaded(kernel(PLACE + body))["k"].launch(1, block, (out,), seed=seed)
    return out


def shuffled(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """The source lane and the predicate: the pseudocode of the PTX ISA."""
    segment = c >> 8 & 31
    most = (lane & segment) | (c & 31 & ~segment)
    least = lane & segment
    if mode == "up":
        source, valid = lane - b, lane - b >= most
    elif mode == "down":
        source, valid = lane + b, lane + b <= most
    elif mode == "bfly":
        source, valid = lane ^ b, lane ^ b <= most
    else:
        source = least | (b & ~segment)
        valid = source <= most
    return (source if valid else lane), valid


@pytest.mark.parametrize(
    ("mode", "c"),
    [("up", 0), ("down", 31), ("bfly", 31), ("idx", 31), ("idx", 0x181F), ("up", 0x1800), ("down", 0x1C1F)],
)
@pytest.mark.parametrize("b", [0, 1, 5, 17])
def test_shuffles(mode: str, b: int, c: int) -> None:
    body = f"""
    mul.lo.u32 %r3, %r0, 7; shfl.sync.{mode}.b32 %r4|%p0, %r3, {b}, {c}, -1; selp.b32 %r5, 1000, 0, %p0;
    add.u32 %r4, %r4, %r5; st.global.u32 [%rd0], %r4;
    """
    expected = []
    for lane in range(96):
        source, valid = shuffled(mode, lane & 31, b, c)
        expected.append(7 * ((lane & ~31) + source) + 1000 * valid)
    assert run(body).tolist() == expected


def test_a_shuffle_inside_a_branch_joins_its_mask_alone() -> None:
    body = """
    and.b32 %r3, %r0, 16; setp.ne.u32 %p0, %r3, 0; @%p0 bra HIGH;
    shfl.sync.idx.b32 %r4, %r0, 3, 31, 0xFFFF; bra END;
    HIGH: shfl.sync.idx.b32 %r4, %r0, 20, 31, 0xFFFF0000;
    END: st.global.u32 [%rd0], %r4;
    """
    for seed in (None, 1, 2, 3):
        assert (run(body, seed=seed) == LANES // 32 * 32 + np.where(LANES & 16, 20, 3)).all()


def test_lanes_wait_for_those_of_their_mask_that_come_later() -> None:
    """Odd lanes take a detour before the shuffle that all of the warp shares."""
    body = """
    and.b32 %r3, %r0, 1; mov.u32 %r5, %r0; setp.eq.u32 %p0, %r3, 0; @%p0 bra MEET; mul.lo.u32 %r5, %r5, 10;
    LOOP: add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 9; @%p1 bra LOOP;
    MEET: shfl.sync.bfly.b32 %r4, %r5, 1, 31, -1; st.global.u32 [%rd0], %r4;
    """
    partner = LANES ^ 1
    for seed in (None, 1, 2, 3):
        assert (run(body, seed=seed) == np.where(partner & 1, 10 * partner, partner)).all()


def test_votes_and_masks() -> None:
    body = """
    setp.gt.u32 %p0, %r0, 40; vote.sync.ballot.b32 %r3, %p0, -1; vote.sync.all.pred %p1, %p0, -1;
    vote.sync.any.pred %p2, %p0, -1; vote.sync.uni.pred %p3, %p0, -1; selp.b32 %r4, 1, 0, %p1; selp.b32 %r5, 2, 0, %p2;
    selp.b32 %r6, 4, 0, %p3; add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r6; popc.b32 %r3, %r3;
    mad.lo.u32 %r4, %r3, 10, %r4; mov.u32 %r5, %lanemask_lt; popc.b32 %r5, %r5; mad.lo.u32 %r4, %r5, 1000, %r4;
    mov.u32 %r5, %laneid; mad.lo.u32 %r4, %r5, 100000, %r4; st.global.u32 [%rd0], %r4;
    """
    counts, flags = np.array([0, 23, 32])[LANES >> 5], np.array([4, 2, 7])[LANES >> 5]
    lane = LANES & 31
    assert (run(body) == 10 * counts + flags + 1000 * lane + 100000 * lane).all()


def test_match_and_elect() -> None:
    body = """
    rem.u32 %r3, %r0, 5; match.any.sync.b32 %r4, %r3, -1; popc.b32 %r4, %r4; cvt.u64.u32 %rd2, %r1;
    match.all.sync.b64 %r5|%p0, %rd2, -1; selp.b32 %r6, 100, 0, %p0; add.u32 %r4, %r4, %r6;
    match.all.sync.b32 %r5|%p0, %r3, -1; selp.b32 %r6, 7000, %r5, %p0; add.u32 %r4, %r4, %r6;
    elect.sync %r7|%p1, 0xFFFFFFFF; selp.b32 %r6, 1000, 0, %p1; add.u32 %r4, %r4, %r6; st.global.u32 [%rd0], %r4;
    """
    same = [sum(1 for other in range(lane & ~31, (lane & ~31) + 32) if other % 5 == lane % 5) for lane in range(96)]
    assert (run(body) == np.array(same) + 100 + 1000 * (LANES % 32 == 0)).all()


@pytest.mark.parametrize(
    ("operation", "combine"),
    [
        ("add.u32", lambda x: x.sum() & 0xFFFFFFFF),
        ("min.s32", lambda x: int(x.astype(np.int32).min()) & 0xFFFFFFFF),
        ("max.u32", lambda x: x.max()),
        ("and.b32", np.bitwise_and.reduce),
        ("or.b32", np.bitwise_or.reduce),
        ("xor.b32", np.bitwise_xor.reduce),
    ],
)
def test_reductions_of_a_warp(operation: str, combine: object) -> None:
    assert callable(combine)
    body = f"mul.lo.u32 %r3, %r0, 0x9E3779B1; redux.sync.{operation} %r4, %r3, -1; st.global.u32 [%rd0], %r4;"
    values = (LANES.astype(np.uint64) * 0x9E3779B1 & 0xFFFFFFFF).astype(np.uint32).reshape(-1, 32)
    assert run(body).tolist() == [int(combine(row)) for row in values for _ in range(32)]


def test_reductions_of_parts_of_a_warp() -> None:
    body = """
    and.b32 %r3, %r0, 1; setp.eq.u32 %p0, %r3, 0; selp.b32 %r4, 0x55555555, 0xAAAAAAAA, %p0;
    redux.sync.add.u32 %r5, %r0, %r4; st.global.u32 [%rd0], %r5;
    """
    warp = LANES // 32 * 32
    assert (run(body) == np.where(LANES & 1, 16 * warp + 256, 16 * warp + 240)).all()


def test_lanes_that_ended_are_not_waited_for() -> None:
    body = """
    setp.ge.u32 %p0, %r0, 70; @%p0 exit; vote.sync.ballot.b32 %r3, 1, -1; bar.warp.sync -1; st.global.u32 [%rd0], %r3;
    """
    assert run(body).tolist() == [0xFFFFFFFF] * 64 + [0x3F] * 6 + [0] * 26


def test_warp_barriers_at_two_places_meet() -> None:
    body = """
    .shared .align 4 .b8 tile[384]; mov.u32 %r6, tile; shl.b32 %r7, %r0, 2; add.u32 %r6, %r6, %r7; xor.b32 %r8, %r7, 64;
    mov.u32 %r9, tile; add.u32 %r9, %r9, %r8; st.shared.u32 [%r6], %r0; and.b32 %r3, %r0, 16; setp.ne.u32 %p0, %r3, 0;
    @%p0 bra HIGH; bar.warp.sync -1; ld.shared.u32 %r4, [%r9]; bra END;
    HIGH: bar.warp.sync -1; ld.shared.u32 %r4, [%r9]; END: st.global.u32 [%rd0], %r4;
    """
    for seed in (None, 4):
        assert (run(body, seed=seed) == (LANES ^ 16)).all()


def test_a_mask_without_the_thread_is_a_fault() -> None:
    with pytest.raises(KernelFault, match="membermask 0x0000fffe does not name the thread") as caught:
        run("shfl.sync.idx.b32 %r4, %r0, 3, 31, 0xFFFE;", block=16)
    assert caught.value.thread == (0, 0, 0)


def test_a_warp_that_never_meets_is_a_deadlock() -> None:
    body = "setp.lt.u32 %p0, %r0, 5; @%p0 bra L; M: bar.sync 1; bra END; L: shfl.sync.idx.b32 %r4, %r0, 3, 31, -1; END:"
    with pytest.raises(KernelFault, match="deadlock in kernel k: 32 threads have not ended") as caught:
        run(body, block=32)
    places = caught.value.diagnostic.places
    assert any("5 threads wait for other threads of the warp" in place for place in places)
    assert any("27 threads wait for barrier 1" in place for place in places)


DIVIDED = """
and.b32 %r3, %r0, 1; setp.ne.u32 %p0, %r3, 0; mul.lo.u32 %r5, %r0, 3; add.u32 %r6, %r0, 1000; @%p0 bra ODD;
shfl.sync.bfly.b32 %r4, %r5, 1, 31, -1; vote.sync.ballot.b32 %r7, !%p0, -1; bra END;
ODD: shfl.sync.bfly.b32 %r4, %r6, 1, 31, -1; vote.sync.ballot.b32 %r7, %p0, -1;
END: popc.b32 %r7, %r7; mad.lo.u32 %r4, %r7, 10000, %r4; st.global.u32 [%rd0], %r4;
"""


def test_lanes_at_different_instructions_meet_under_one_mask() -> None:
    """Equal qualifiers and masks are what the manual asks for, not one place."""
    partner = LANES ^ 1
    expected = np.where(partner & 1, partner + 1000, 3 * partner) + 320000
    for seed in (None, 1, 2, 3):
        assert (run(DIVIDED, seed=seed) == expected).all()


@pytest.mark.parametrize(
    ("old", "new"),
    [("ODD: shfl.sync.bfly", "ODD: shfl.sync.down"), ("%r6, 1, 31, -1", "%r6, 1, 31, 0xAAAAAAAA")],
)
def test_different_qualifiers_or_masks_do_not_meet(old: str, new: str) -> None:
    assert old in DIVIDED
    with pytest.raises(KernelFault, match="deadlock in kernel k"):
        run(DIVIDED.replace(old, new))


def test_lanes_in_different_functions_meet() -> None:
    before = """
    .func (.param .b32 result) get(.param .b32 value) { .reg .b32 %r<3>; ld.param.b32 %r1, [value];
     shfl.sync.idx.b32 %r2, %r1, 3, 31, -1; st.param.b32 [result], %r2; ret; }
    """
    body = """
    setp.lt.u32 %p0, %r0, 7; mul.lo.u32 %r3, %r0, 5; @%p0 bra CALL; shfl.sync.idx.b32 %r4, %r3, 20, 31, -1; bra END;
    CALL: { .param .b32 a; .param .b32 b; st.param.b32 [a], %r3; call (b), get, (a); ld.param.b32 %r4, [b]; }
    END: st.global.u32 [%rd0], %r4;
    """
    out = np.zeros(32, np.uint32)
    loaded(kernel(PLACE + body, before=before))["k"][1, 32](out)
    assert out.tolist() == [15] * 7 + [100] * 25


def test_operands_survive_the_wait_for_others() -> None:
    """A negated predicate and an offset are computed before the lanes that come first begin to wait."""
    body = """
    .shared .align 16 .b8 tile[544]; mov.u32 %r6, tile; shl.b32 %r7, %r0, 4; add.u32 %r6, %r6, %r7;
    st.shared.u32 [%r6+16], %r0; bar.warp.sync -1;
    and.b32 %r3, %r0, 3; setp.eq.u32 %p0, %r3, 0; setp.gt.u32 %p2, %r0, 11; @%p0 bra MEET;
    LOOP: add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 9; @%p1 bra LOOP;
    MEET: vote.sync.ballot.b32 %r4, !%p2, -1; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r6+16];
    shl.b32 %r5, %r5, 16; or.b32 %r5, %r5, %r4; st.global.u32 [%rd0], %r5;
    """
    lane = LANES[:32]
    for seed in (None, 1, 2, 3):
        assert (run(body, block=32, seed=seed) == (0xFFF | np.where(lane & 3, 0, lane >> 2) << 16)).all()


@pytest.mark.parametrize("operator", ["min", "max"])
@pytest.mark.parametrize("options", ["", ".abs", ".NaN", ".abs.NaN"])
@pytest.mark.parametrize("mask", ["full", "parts"])
def test_float_reductions(operator: str, options: str, mask: str) -> None:
    """Zeros are ordered by sign; without .NaN only numbers count."""
    source = np.random.default_rng(5)
    values = source.standard_normal((6, 32)).astype(np.float32)
    values[1, 3], values[2, :], values[3, :16], values[4, 5], values[4, 6] = np.nan, np.nan, -0.0, np.inf, -np.inf
    values[3, 16:], values[5] = 0.0, -np.abs(values[5])
    bits = values.reshape(-1).view(np.uint32).copy()
    bits[40] |= 0xFFC00000
    body = """
    ld.param.u64 %rd2, [values]; add.u64 %rd2, %rd2, %rd1; ld.global.f32 %f0, [%rd2]; mov.u32 %r4, -1;
    """
    if mask == "parts":
        body += "and.b32 %r3, %r0, 1; setp.eq.u32 %p0, %r3, 0; selp.b32 %r4, 0x55555555, 0xAAAAAAAA, %p0;"
    body += f"redux.sync.{operator}{options}.f32 %f1, %f0, %r4; st.global.f32 [%rd0], %f1;"
    out = np.zeros(192, np.uint32)
    text = kernel(PLACE + body, ".param .u64 out, .param .u64 values", target="sm_100a")
    loaded(text)["k"][1, 192](out, bits)
    for lane in range(192):
        warp = bits[lane // 32 * 32 : lane // 32 * 32 + 32]
        chosen = (warp if mask == "full" else warp[lane % 2 :: 2]).tolist()
        if ".abs" in options:
            chosen = [x & 0x7FFFFFFF for x in chosen]
        numbers = [x for x in chosen if x & 0x7FFFFFFF <= 0x7F800000]
        ordered = sorted(numbers, key=lambda x: -(x & 0x7FFFFFFF) - 1 if x >> 31 else x)
        want = 0x7FFFFFFF
        if numbers and not (".NaN" in options and len(numbers) < len(chosen)):
            want = ordered[0 if operator == "min" else -1]
        assert out[lane] == want, lane
