"""Loads and stores in every space: types, vectors, generic addresses, stacks, and accesses that are refused."""

from __future__ import annotations

import numpy as np
import pytest

from rglink.emulate import KernelFault
from tests.emulate.support import PLACE, kernel, loaded

LANES = np.arange(96, dtype=np.uint32)


def run(body: str, before: str = "", grid: int = 1, block: int = 96, shared: int = 0) -> np.ndarray:
    """The words that the threads wrote to `out`."""
    out = np.zeros(grid * block, np.uint32)
    loaded(kernel(PLACE + body, before=before))["k"].launch(grid, block, (out,), shared=shared)
    return out


@pytest.mark.parametrize(
    ("ptx_type", "dtype"),
    [("u8", np.uint8), ("s8", np.int8), ("u16", np.uint16), ("s16", np.int16), ("u32", np.uint32), ("s32", np.int32)],
)
def test_narrow_loads_extend_and_narrow_stores_cut(ptx_type: str, dtype: type) -> None:
    size = np.dtype(dtype).itemsize
    body = f"""
    ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out]; mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd2, %r0, {size}; add.u64 %rd0, %rd0, %rd2; ld.global.{ptx_type} %r1, [%rd0];
    mul.wide.u32 %rd3, %r0, 4; add.u64 %rd1, %rd1, %rd3; st.global.u32 [%rd1], %r1;
    not.b32 %r1, %r1; st.global.{ptx_type} [%rd0], %r1;
    """
    values: np.ndarray = np.random.default_rng(1).integers(0, 256, 64 * size, np.uint8).view(dtype)
    given, out = values.copy(), np.zeros(64, np.uint32)
    loaded(kernel(body, ".param .u64 in, .param .u64 out"))["k"][1, 64](given, out)
    assert (out == values.astype(np.int64).astype(np.uint32)).all()
    assert (given == ~values).all()


def test_vectors_and_doubles() -> None:
    body = """
    ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 16;
    add.u64 %rd0, %rd0, %rd2; add.u64 %rd1, %rd1, %rd2; ld.global.nc.v4.f32 {%f0, %f1, %f2, %f3}, [%rd0];
    st.global.v4.f32 [%rd1], {%f3, %f2, %f1, %f0}; ld.global.L1::evict_last.v2.f64 {%fd0, %fd1}, [%rd0];
    add.f64 %fd0, %fd0, %fd1; st.global.f64 [%rd1+8], %fd0;
    """
    given = np.random.default_rng(2).standard_normal(64)
    out = np.zeros(64)
    loaded(kernel(body, ".param .u64 in, .param .u64 out"))["k"][1, 32](given, out)
    assert (out[1::2] == given[0::2] + given[1::2]).all()
    words, expected = out.view(np.float32).reshape(-1, 4), given.view(np.float32).reshape(-1, 4)[:, ::-1]
    assert words[:, :2].tobytes() == np.ascontiguousarray(expected[:, :2]).tobytes()


def test_shared_memory_is_per_block_static_and_dynamic() -> None:
    before = ".extern .shared .align 16 .b8 pool[];"
    body = """
    .shared .align 4 .b8 tile[128]; mov.u32 %r3, %tid.x; shl.b32 %r4, %r3, 2; mov.u32 %r5, tile; mov.u32 %r6, pool;
    add.u32 %r5, %r5, %r4; add.u32 %r6, %r6, %r4; st.shared.u32 [%r5], %r0; mul.lo.u32 %r7, %r0, 3;
    st.shared.u32 [%r6+4], %r7; bar.sync 0; xor.b32 %r4, %r4, 124; mov.u32 %r5, tile; add.u32 %r5, %r5, %r4;
    ld.shared.u32 %r8, [%r5]; mov.u32 %r6, pool; add.u32 %r6, %r6, %r4; ld.shared.u32 %r9, [%r6+4];
    add.u32 %r8, %r8, %r9; st.global.u32 [%rd0], %r8;
    """
    lanes = np.arange(128)
    assert (run(body, before, grid=4, block=32, shared=132) == 4 * ((lanes & ~31) + 31 - lanes % 32)).all()


def test_generic_addresses_reach_every_space_at_once() -> None:
    before = ".global .u32 word = 1000;\n.const .u32 fixed = 2000;"
    body = """
    .shared .align 4 .u32 cell; .local .align 4 .u32 own; st.shared.u32 [cell], 3000; bar.sync 0;
    mov.u64 %rd5, own; st.local.u32 [%rd5], %r0; cvta.local.u64 %rd2, %rd5; mov.u64 %rd3, cell;
    cvta.shared.u64 %rd3, %rd3; mov.u64 %rd4, word; cvta.global.u64 %rd4, %rd4; mov.u64 %rd6, fixed;
    cvta.const.u64 %rd6, %rd6; and.b32 %r3, %r0, 3; setp.eq.u32 %p0, %r3, 0; selp.b64 %rd7, %rd2, %rd3, %p0;
    setp.eq.u32 %p1, %r3, 2; selp.b64 %rd7, %rd4, %rd7, %p1; setp.eq.u32 %p2, %r3, 3; selp.b64 %rd7, %rd6, %rd7, %p2;
    ld.u32 %r4, [%rd7]; isspacep.shared %p3, %rd7; isspacep.local %p4, %rd7; isspacep.global %p5, %rd7;
    @%p3 add.u32 %r4, %r4, 10; @%p4 add.u32 %r4, %r4, 20; @%p5 add.u32 %r4, %r4, 40;
    @%p4 st.u32 [%rd7], 5; @%p4 ld.local.u32 %r5, [%rd5]; @%p4 mad.lo.u32 %r4, %r5, 100000, %r4;
    st.global.u32 [%rd0], %r4;
    """
    expected = np.select(
        [LANES % 4 == 0, LANES % 4 == 1, LANES % 4 == 2], [LANES + 500020, LANES * 0 + 3010, LANES * 0 + 1040]
    )
    found = run(body, before)
    assert (found[LANES % 4 != 3] == expected[LANES % 4 != 3]).all()
    assert (found[LANES % 4 == 3] % 100 % 40 == 0).all()
    assert (found[LANES % 4 == 3] // 100 == 20).all()


def test_stacks_are_per_thread_and_per_call() -> None:
    before = """
    .func (.param .b32 y) fill(.param .b64 p) { .local .align 8 .b8 depot[64]; .reg .b64 %rd<4>; .reg .b32 %r<4>;
     ld.param.b64 %rd1, [p]; mov.b64 %rd2, depot; ld.u32 %r1, [%rd1]; st.local.u32 [%rd2+8], 77;
     st.u32 [%rd1], 55; ld.local.u32 %r2, [%rd2+8]; add.u32 %r1, %r1, %r2; st.param.b32 [y], %r1; ret; }
    """
    body = """
    .local .align 8 .b8 depot[32]; mov.b64 %rd2, depot; cvta.local.u64 %rd3, %rd2; st.local.u32 [%rd2+8], %r0;
    and.b32 %r3, %r0, 7; mul.wide.u32 %rd4, %r3, 4; add.u64 %rd5, %rd2, %rd4; st.local.u8 [%rd5+1], 9;
    add.u64 %rd6, %rd3, 8; { .param .b64 a; .param .b32 b; st.param.b64 [a], %rd6; call.uni (b), fill, (a);
    ld.param.b32 %r4, [b]; } ld.local.u32 %r5, [%rd2+8]; mad.lo.u32 %r4, %r5, 1000, %r4; st.global.u32 [%rd0], %r4;
    """
    before_call = np.where(LANES % 8 == 2, (LANES & 0xFFFF00FF) | 0x900, LANES)
    assert (run(body, before) == 55 * 1000 + before_call + 77).all()


def test_kernel_parameters_have_addresses() -> None:
    body = """
    ld.param.u64 %rd0, [out]; mov.b64 %rd1, pair; cvta.param.u64 %rd1, %rd1; mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 1;
    mul.wide.u32 %rd2, %r1, 8; add.u64 %rd1, %rd1, %rd2; ld.u64 %rd3, [%rd1]; ld.param.u64 %rd4, [pair+8];
    add.u64 %rd3, %rd3, %rd4; mul.wide.u32 %rd2, %r0, 8; add.u64 %rd0, %rd0, %rd2; st.global.u64 [%rd0], %rd3;
    """
    out = np.zeros(8, np.uint64)
    program = loaded(kernel(body, ".param .u64 out, .param .align 8 .b8 pair[16]"))
    program["k"][1, 8](out, (5, 70))
    assert out.tolist() == [75, 140] * 4


def test_equal_addresses_keep_the_last_lane() -> None:
    body = "ld.param.u64 %rd2, [out]; bar.sync 0; st.global.u32 [%rd2+4], %r0;"
    found = run(body)
    assert found[1] == 95
    assert found.sum() == 95


@pytest.mark.parametrize(
    ("body", "message", "slug"),
    [
        (
            "st.global.u32 [%rd0+4], 1;",
            r"out of bounds: 4 bytes at 0x\w+, 4 bytes past the end of the array of argument 1 of k \(384 bytes\)",
            "out-of-bounds",
        ),
        (
            "ld.global.u32 %r3, [%rd0+-4];",
            r"out of bounds: 4 bytes at 0x\w+, 4 bytes before the array",
            "out-of-bounds",
        ),
        ("mov.u64 %rd2, 8; ld.u32 %r3, [%rd2];", "null pointer: 4 bytes at 0x8", "out-of-bounds"),
        ("ld.global.u32 %r3, [%rd0+2];", "address 0x[0-9a-f]+ is not a multiple of 4", "misaligned-access"),
        ("ld.global.v2.u32 {%r3, %r4}, [%rd0+4];", "is not a multiple of 8", "misaligned-access"),
        (
            "mov.u32 %r4, 8; ld.shared.u32 %r3, [%r4];",
            "4 bytes at shared address 0x8, the block has 0 bytes",
            "out-of-bounds",
        ),
        (
            ".local .align 8 .b8 d[16]; mov.b64 %rd2, d; st.local.u32 [%rd2+64], 1;",
            "4 bytes at local address 0x40, the stack has 16 bytes",
            "out-of-bounds",
        ),
        ("atom.global.add.u32 %r3, [%rd0+400], 1;", "out of bounds: 4 bytes", "out-of-bounds"),
    ],
)
def test_wild_accesses_are_faults(body: str, message: str, slug: str) -> None:
    with pytest.raises(KernelFault, match=message) as caught:
        run(body)
    assert caught.value.diagnostic.slug == slug
    assert caught.value.block == (0, 0, 0)


def test_the_lane_that_strays_is_named() -> None:
    with pytest.raises(KernelFault) as caught:
        run("setp.eq.u32 %p0, %r0, 37; @%p0 add.u64 %rd0, %rd0, 4000; @%p0 st.global.u32 [%rd0], 1;")
    assert caught.value.thread == (37, 0, 0)


def test_a_run_of_addresses_over_a_gap_is_refused() -> None:
    """The first and last address lie in allocations, those between them do not."""
    body = """
    ld.param.u64 %rd0, [a]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd0, %rd0, %rd1;
    st.global.u32 [%rd0], 1;
    """
    a, b = np.zeros(4, np.uint32), np.zeros(256, np.uint32)
    with pytest.raises(KernelFault, match="past the end of the array of argument 1"):
        loaded(kernel(body, ".param .u64 a, .param .u64 b"))["k"][1, 256](a, b)
