"""wmma against NumPy's products: every type, shape and layout, from global and shared memory; what it refuses."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rglink.emulate import KernelFault, PtxError, load
from tests.emulate.support import kernel, loaded, module

SHAPES = {"m16n16k16": (16, 16, 16), "m8n32k16": (8, 32, 16), "m32n8k16": (32, 8, 16), "m16n16k8": (16, 16, 8)}
FORMS = [
    *itertools.product(("f16",), ("f16", "f32"), ("f16", "f32"), ("m16n16k16", "m8n32k16", "m32n8k16")),
    *itertools.product(("bf16",), ("f32",), ("f32",), ("m16n16k16", "m8n32k16", "m32n8k16")),
    *itertools.product(("s8", "u8"), ("s32",), ("s32",), ("m16n16k16", "m8n32k16", "m32n8k16")),
    ("tf32", "f32", "f32", "m16n16k8"),
    ("f64", "f64", "f64", "m8n8k4"),
]
DTYPES = {"f16": "f2", "bf16": "u2", "tf32": "f4", "f32": "f4", "f64": "f8", "s8": "i1", "u8": "u1", "s32": "i4"}
ALL_SHAPES = {**SHAPES, "m8n8k4": (8, 8, 4)}


def registers(count: int, start: int, kind: str) -> str:
    name = "%fd" if kind == "f64" else "%q"
    return "{" + ", ".join(f"{name}{start + i}" for i in range(count)) + "}"


def fragment_registers(kind: str, rows: int, columns: int, factor: bool) -> int:
    """The manual's table of fragments."""
    if factor and kind == "f16":
        return 8
    per_register = {"f16": 2, "bf16": 2, "s8": 4, "u8": 4}.get(kind, 1)
    return rows * columns // 32 // per_register


def in_memory(matrix: np.ndarray, layout: str, stride: int, kind: str) -> np.ndarray:
    """The matrix as wmma.load finds it; gaps between rows hold what must not be read."""
    lines = matrix if layout == "row" else matrix.T
    found = np.full((len(lines), stride), 77, DTYPES[kind])
    bits = (lines.astype("f4").view("u4") >> np.uint32(16)).astype("u2") if kind == "bf16" else lines
    found[:, : lines.shape[1]] = bits
    return found


@pytest.mark.parametrize(("kind", "result", "addend", "shape"), FORMS)
@pytest.mark.parametrize(("left", "right", "sums"), [("row", "col", "row"), ("col", "row", "col")])
def test_products(kind: str, result: str, addend: str, shape: str, left: str, right: str, sums: str) -> None:
    m, n, k = ALL_SHAPES[shape]
    types = f"{result}.{addend}" if kind == "f16" else f"{result}.{kind}.{kind}.{addend}"
    counts = [
        fragment_registers(kind, m, k, True),
        fragment_registers(kind, k, n, True),
        fragment_registers(addend, m, n, False),
        fragment_registers(result, m, n, False),
    ]
    a, b, c, d = (registers(counts[i], sum(counts[:i]), kind) for i in range(4))
    shapes, layouts = ((m, k), (k, n), (m, n)), (left, right, sums)
    strides = [
        (columns if layout == "row" else rows) + 16 for (rows, columns), layout in zip(shapes, layouts, strict=True)
    ]
    body = f"""
    .reg .b32 %q<64>;
    ld.param.u64 %rd0, [a]; ld.param.u64 %rd1, [b]; ld.param.u64 %rd2, [c]; ld.param.u64 %rd3, [d];
    wmma.load.a.sync.aligned.{left}.{shape}.global.{kind} {a}, [%rd0], {strides[0]};
    wmma.load.b.sync.aligned.{right}.{shape}.{kind} {b}, [%rd1], {strides[1]};
    wmma.load.c.sync.aligned.{sums}.{shape}.global.{addend} {c}, [%rd2], {strides[2]};
    wmma.mma.sync.aligned.{left}.{right}.{shape}.{types} {d}, {a}, {b}, {c};
    wmma.store.d.sync.aligned.{sums}.{shape}.global.{result} [%rd3], {d};
    """
    source = np.random.default_rng(1)
    low = 0 if kind == "u8" else -8
    x, y, z = (source.integers(low, 9, shape) for shape in shapes)
    text = kernel(body, ".param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d")
    out = np.zeros((m, n) if sums == "row" else (n, m), DTYPES[result])
    arrays = [
        in_memory(matrix, layout, stride, of)
        for matrix, layout, stride, of in zip((x, y, z), layouts, strides, (kind, kind, addend), strict=True)
    ]
    loaded(text)["k"][1, 32](*arrays, out)
    assert np.array_equal(out if sums == "row" else out.T, x @ y + z)


def test_saturation_shared_memory_and_two_warps() -> None:
    """Each warp multiplies by its own block of shared memory; the sums of the second are clamped."""
    sums = ", ".join(f"%q{i}" for i in range(8))
    body = f"""
    .reg .b32 %q<16>; .shared .align 32 .b8 tile[512]; ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x;
    shr.u32 %r1, %r0, 5; shl.b32 %r2, %r1, 8; mov.u32 %r3, tile; add.u32 %r3, %r3, %r2; and.b32 %r4, %r0, 31;
    shl.b32 %r4, %r4, 3; add.u32 %r5, %r3, %r4; setp.eq.u32 %p0, %r1, 0; selp.b32 %r6, 0x01010101, 0x7F7F7F7F, %p0;
    st.shared.u32 [%r5], %r6; st.shared.u32 [%r5+4], %r6; bar.sync 0;
    wmma.load.a.sync.aligned.row.m16n16k16.shared.s8 {{%q8, %q9}}, [%r3];
    selp.b32 %q10, 1, 0x7FFFFFF0, %p0; mov.b32 %q0, %q10; mov.b32 %q1, %q10; mov.b32 %q2, %q10; mov.b32 %q3, %q10;
    mov.b32 %q4, %q10; mov.b32 %q5, %q10; mov.b32 %q6, %q10; mov.b32 %q7, %q10;
    wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32.satfinite {{{sums}}}, {{%q8, %q9}}, {{%q8, %q9}}, {{{sums}}};
    mul.wide.u32 %rd1, %r1, 1024; add.u64 %rd0, %rd0, %rd1;
    wmma.store.d.sync.aligned.col.m16n16k16.global.s32 [%rd0], {{{sums}}}, 16;
    """
    out = np.zeros((2, 256), np.int32)
    loaded(kernel(body))["k"][1, 64](out)
    assert (out[0] == 17).all()
    assert (out[1] == 2**31 - 1).all()


def test_element_by_element_work_on_fragments() -> None:
    """Sums in f32 narrowed to f16 one by one keep their places, as programs rely on."""
    wide, narrow = ", ".join(f"%q{i}" for i in range(8)), ", ".join(f"%q{8 + i}" for i in range(4))
    pairs = " ".join(f"cvt.rn.f16x2.f32 %q{8 + i}, %q{2 * i + 1}, %q{2 * i};" for i in range(4))
    body = f"""
    .reg .b32 %q<16>; ld.param.u64 %rd0, [a]; ld.param.u64 %rd1, [out];
    wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {{{wide}}}, [%rd0];
    {pairs} wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%rd1], {{{narrow}}};
    """
    a, out = np.arange(256, dtype=np.float32), np.zeros(256, np.float16)
    loaded(kernel(body, ".param .u64 a, .param .u64 out"))["k"][1, 32](a, out)
    assert (out == a).all()


@pytest.mark.parametrize(
    "instruction",
    [
        "wmma.load.a.sync.aligned.row.m8n8k32.s4 {%r0}, [%rd0];",
        "wmma.load.a.sync.aligned.row.m8n8k128.b1 {%r0}, [%rd0];",
        "wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r0, %r1}, [%rd0];",
        "wmma.load.d.sync.aligned.row.m16n16k16.f32 {%r0, %r1}, [%rd0];",
    ],
)
def test_other_forms_are_refused_by_name(instruction: str) -> None:
    text = module(
        ".visible .entry k(.param .u64 out) { .reg .b32 %r<4>; .reg .b64 %rd<2>; ld.param.u64 %rd0, [out];\n"
        + instruction
        + "\nret; }"
    )
    with pytest.raises(PtxError, match=r"program: line 5: in k: unsupported instruction wmma\.load"):
        load(text.encode())["k"][1, 32](np.zeros(64, np.uint32))


@pytest.mark.parametrize("before", ["", "setp.eq.u32 %p0, %r0, 3; @%p0 exit;"])
@pytest.mark.parametrize(
    ("instruction", "name"),
    [
        ("wmma.load.a.sync.aligned.row.m8n8k4.global.f64 {%fd0}, [%rd0];", "wmma"),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [tile];", "ldmatrix"),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd0, %fd1}, {%fd2}, {%fd3}, {%fd4, %fd5};", "mma"),
    ],
)
def test_every_thread_of_the_warp_must_be_there(instruction: str, name: str, before: str) -> None:
    body = f".shared .align 128 .b8 tile[128]; ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; {before} {instruction}"
    threads, count = (40, 8) if not before else (32, 31)
    with pytest.raises(KernelFault, match=f"{name} is executed by {count} threads of a warp, wanted all 32"):
        loaded(kernel(body))["k"][1, threads](np.zeros(64))
