"""atom and red: every operation and type, on few and many addresses, against one thread after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rglink.emulate import KernelFault, PtxError, load
from tests.emulate.support import kernel, loaded

LANES = 256
# Cells that the lanes share: one, three hot ones, one for each lane, and hot ones among many cold.
SPREADS = {
    "one": np.zeros(LANES, np.uint32),
    "few": np.arange(LANES, dtype=np.uint32) % 3,
    "own": np.arange(LANES, dtype=np.uint32)[::-1].copy(),
    "mixed": np.where(np.arange(LANES) % 2, np.arange(LANES), 0).astype(np.uint32),
}
Update = Callable[[int, int], int]


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def update_of(operation: str, ptx_type: str) -> Update:
    """What one thread does to a word of bits: the definition of the PTX ISA."""
    bits = int(ptx_type[1:])
    mask = (1 << bits) - 1
    number: Callable[[int], int] = (lambda x: signed(x, bits)) if ptx_type[0] == "s" else (lambda x: x)
    table: dict[str, Update] = {
        "add": lambda a, b: (a + b) & mask,
        "min": lambda a, b: min(number(a), number(b)) & mask,
        "max": lambda a, b: max(number(a), number(b)) & mask,
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "exch": lambda a, b: b,
        "inc": lambda a, b: 0 if a >= b else a + 1,
        "dec": lambda a, b: b if a == 0 or a > b else a - 1,
    }
    return table[operation]


FORMS = [
    *(("add", t) for t in ("u32", "s32", "u64")),
    *((op, t) for op in ("min", "max") for t in ("u32", "s32", "u64", "s64")),
    *((op, t) for op in ("and", "or", "xor", "exch") for t in ("b32", "b64")),
    ("inc", "u32"),
    ("dec", "u32"),
]


@pytest.mark.parametrize("spread", sorted(SPREADS))
@pytest.mark.parametrize(("operation", "ptx_type"), FORMS)
def test_each_lane_finds_what_the_lanes_before_it_left(operation: str, ptx_type: str, spread: str) -> None:
    size = int(ptx_type[1:]) // 8
    register, dtype = ("%rd5", np.uint64) if size == 8 else ("%r5", np.uint32)
    old = register.replace("5", "6")
    body = f"""
    ld.param.u64 %rd0, [cells]; ld.param.u64 %rd1, [where]; ld.param.u64 %rd2, [values]; ld.param.u64 %rd3, [out];
    mov.u32 %r0, %tid.x; mul.wide.u32 %rd4, %r0, 4; add.u64 %rd1, %rd1, %rd4; ld.global.u32 %r1, [%rd1];
    mul.wide.u32 %rd4, %r1, {size}; add.u64 %rd0, %rd0, %rd4; mul.wide.u32 %rd4, %r0, {size};
    add.u64 %rd2, %rd2, %rd4; add.u64 %rd3, %rd3, %rd4; ld.global.b{8 * size} {register}, [%rd2];
    atom.acq_rel.gpu.global.{operation}.{ptx_type} {old}, [%rd0], {register}; st.global.b{8 * size} [%rd3], {old};
    """
    source = np.random.default_rng(3)
    high = 12 if operation in ("inc", "dec") else np.iinfo(dtype).max
    values, cells = source.integers(0, high, LANES, dtype), source.integers(0, high, LANES, dtype)
    found, out = cells.copy(), np.zeros(LANES, dtype)
    parameters = ".param .u64 cells, .param .u64 where, .param .u64 values, .param .u64 out"
    loaded(kernel(body, parameters))["k"][1, LANES](found, SPREADS[spread], values, out)
    update, expected, olds = update_of(operation, ptx_type), [int(x) for x in cells], []
    for lane, cell in enumerate(SPREADS[spread].tolist()):
        olds.append(expected[cell])
        expected[cell] = update(expected[cell], int(values[lane]))
    assert out.tolist() == olds
    assert found.tolist() == expected


@pytest.mark.parametrize("spread", sorted(SPREADS))
def test_compare_and_swap(spread: str) -> None:
    body = """
    ld.param.u64 %rd0, [cells]; ld.param.u64 %rd1, [where]; ld.param.u64 %rd2, [out]; mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd4, %r0, 4; add.u64 %rd1, %rd1, %rd4; add.u64 %rd2, %rd2, %rd4; ld.global.u32 %r1, [%rd1];
    mul.wide.u32 %rd4, %r1, 4; add.u64 %rd0, %rd0, %rd4; add.u32 %r2, %r0, 1;
    atom.cas.b32 %r3, [%rd0], %r0, %r2; st.global.u32 [%rd2], %r3;
    """
    cells, out = np.zeros(LANES, np.uint32), np.zeros(LANES, np.uint32)
    expected, olds = [0] * LANES, []
    for lane, cell in enumerate(SPREADS[spread].tolist()):
        olds.append(expected[cell])
        expected[cell] = lane + 1 if expected[cell] == lane else expected[cell]
    parameters = ".param .u64 cells, .param .u64 where, .param .u64 out"
    loaded(kernel(body, parameters))["k"][1, LANES](cells, SPREADS[spread], out)
    assert (out.tolist(), cells.tolist()) == (olds, expected)


@pytest.mark.parametrize(
    ("ptx_type", "register", "dtype"),
    [("f32", "%f1", np.float32), ("f64", "%fd1", np.float64), ("noftz.f16", "%h1", np.float16)],
)
def test_floating_sums_are_in_lane_order(ptx_type: str, register: str, dtype: type) -> None:
    size = np.dtype(dtype).itemsize
    body = f"""
    ld.param.u64 %rd0, [sum]; ld.param.u64 %rd1, [values]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, {size};
    add.u64 %rd1, %rd1, %rd2; ld.global.b{8 * size} {register}, [%rd1];
    red.relaxed.sys.global.add.{ptx_type} [%rd0], {register};
    """
    values: np.ndarray = np.random.default_rng(4).standard_normal(LANES).astype(dtype)
    total: np.ndarray = np.zeros(1, dtype)
    loaded(kernel(body, ".param .u64 sum, .param .u64 values"))["k"][1, LANES](total, values)
    expected = dtype(0)
    for value in values:
        expected = dtype(expected + value)
    assert total[0] == expected


def test_subnormal_sums_are_flushed_in_global_memory_alone() -> None:
    body = """
    .shared .align 4 .f32 cell; ld.param.u64 %rd0, [out]; mov.f32 %f0, 0f00000001; st.shared.f32 [cell], 0f00000000;
    atom.global.add.f32 %f1, [%rd0], %f0; atom.shared.add.f32 %f1, [cell], %f0; ld.shared.f32 %f1, [cell];
    st.global.f32 [%rd0+4], %f1;
    """
    out = np.zeros(2, np.uint32)
    loaded(kernel(body))["k"][1, 1](out)
    assert out.tolist() == [0, 1]


def test_packed_halves_and_vectors() -> None:
    body = """
    ld.param.u64 %rd0, [out]; mov.b32 %r0, 0x3C004000; atom.global.add.noftz.f16x2 %r1, [%rd0], %r0;
    mov.f32 %f0, 0f3F800000; mov.f32 %f1, 0f40000000; red.global.add.v2.f32 [%rd0+8], {%f0, %f1};
    """
    out = np.zeros(4, np.uint32)
    loaded(kernel(body))["k"][1, 3](out)
    assert out[:1].view(np.float16).tolist() == [6.0, 3.0]
    assert out[2:].view(np.float32).tolist() == [3.0, 6.0]


@pytest.mark.parametrize("spelling", ["global.{op}.noftz.v2.f16x2", "global.v2.f16x2.{op}.noftz"])
@pytest.mark.parametrize("operator", ["min", "max"])
def test_extremes_of_vectors_of_halves(operator: str, spelling: str) -> None:
    """Many threads at two cells of four halves each; NaNs lose."""
    body = f"""
    ld.param.u64 %rd0, [out]; ld.param.u64 %rd1, [values]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 8;
    add.u64 %rd1, %rd1, %rd2; ld.global.v2.b32 {{%r1, %r2}}, [%rd1]; and.b32 %r3, %r0, 1; mul.wide.u32 %rd3, %r3, 8;
    add.u64 %rd0, %rd0, %rd3; red.{spelling.format(op=operator)} [%rd0], {{%r1, %r2}};
    """
    values = np.random.default_rng(2).standard_normal((96, 4)).astype(np.float16)
    values[5, 1] = np.nan
    out = np.zeros((2, 4), np.float16)
    loaded(kernel(body, ".param .u64 out, .param .u64 values"))["k"][1, 96](out, values)
    best = np.fmin if operator == "min" else np.fmax
    for parity in (0, 1):
        assert (out[parity] == best(best.reduce(values[parity::2]), np.float16(0))).all()


def test_atomic_extremes_find_the_old_value_and_single_halves_have_none() -> None:
    body = """
    ld.param.u64 %rd0, [out]; mov.b16 %h0, 0x4000; mov.b16 %h1, 0x3800;
    atom.global.max.noftz.v2.bf16 {%h2, %h3}, [%rd0], {%h0, %h1}; st.global.v2.b16 [%rd0+4], {%h2, %h3};
    """
    out = np.array([0x3F80, 0x3F80, 0, 0], np.uint16)
    loaded(kernel(body))["k"][1, 1](out)
    assert out.tolist() == [0x4000, 0x3F80, 0x3F80, 0x3F80]
    refused = kernel("ld.param.u64 %rd0, [out]; red.global.max.noftz.f16 [%rd0], %h0;").encode()
    with pytest.raises(PtxError, match=r"unsupported instruction red\.global\.max\.noftz\.f16"):
        load(refused)["k"][1, 1](out)


def test_atomics_of_shared_local_and_generic_addresses() -> None:
    body = """
    .shared .align 4 .u32 cell; .local .align 4 .u32 own; ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x;
    setp.eq.u32 %p0, %r0, 0; @%p0 st.shared.u32 [cell], 0; bar.sync 0; red.shared.add.u32 [cell], %r0;
    mov.u64 %rd1, cell; cvta.shared.u64 %rd1, %rd1; and.b32 %r1, %r0, 1; setp.eq.u32 %p1, %r1, 0;
    selp.b64 %rd2, %rd1, %rd0, %p1; atom.add.u32 %r2, [%rd2], 1; bar.sync 0;
    @%p0 ld.shared.u32 %r3, [cell]; @%p0 st.global.u32 [%rd0+4], %r3;
    """
    out = np.zeros(2, np.uint32)
    loaded(kernel(body))["k"][1, 64](out)
    assert out.tolist() == [32, 64 * 63 // 2 + 32]


LOCK = """
ld.param.u64 %rd0, [out]; mov.u32 %r9, 0;
AGAIN: setp.ge.u32 %p1, %r9, 3; @%p1 bra END; add.u32 %r9, %r9, 1;
SPIN: atom.acquire.gpu.global.cas.b32 %r1, [%rd0], 0, 1; setp.ne.u32 %p0, %r1, 0; @%p0 bra SPIN;
ld.relaxed.gpu.global.u32 %r2, [%rd0+4]; add.u32 %r2, %r2, 1; st.relaxed.gpu.global.u32 [%rd0+4], %r2;
st.release.gpu.global.u32 [%rd0], 0; bra AGAIN; END:
"""


@pytest.mark.parametrize("seed", [None, 1])
def test_a_lock_lets_every_thread_through(seed: int | None) -> None:
    """Needs independent threads: those that spin must let the holder of the lock run."""
    out = np.zeros(2, np.uint32)
    loaded(kernel(LOCK))["k"].launch(2, 40, (out,), seed=seed)
    assert out.tolist() == [0, 240]


def test_a_block_waits_for_another_one() -> None:
    body = """
    ld.param.u64 %rd0, [out]; mov.u32 %r0, %ctaid.x; setp.ne.u32 %p0, %r0, 0; @%p0 bra WAIT_FOR;
    WAIT: ld.acquire.gpu.global.u32 %r1, [%rd0]; setp.ne.u32 %p1, %r1, 3; @%p1 bra WAIT; st.global.u32 [%rd0+4], 1;
    bra END; WAIT_FOR: mov.u32 %r2, %tid.x; setp.eq.u32 %p1, %r2, 0; @%p1 red.release.gpu.global.add.u32 [%rd0], 1; END:
    """
    out = np.zeros(2, np.uint32)
    loaded(kernel(body))["k"][4, 64](out)
    assert out.tolist() == [3, 1]


def test_a_wait_for_a_later_wave_is_given_up() -> None:
    body = """
    ld.param.u64 %rd0, [out];
    WAIT: ld.acquire.gpu.global.u32 %r1, [%rd0]; setp.ne.u32 %p1, %r1, 3; @%p1 bra WAIT;
    """
    with pytest.raises(KernelFault, match="no end after"):
        loaded(kernel(body))["k"].launch(4, 64, (np.zeros(2, np.uint32),), wave_lanes=64, steps=3000)
