"""Loading files and launching kernels on NumPy arrays: arguments, variables, the device heap, printing, refusals."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from rglink.diagnostics import InputError
from rglink.emulate import KernelFault, LaunchError, load
from tests.emulate.support import kernel, loaded, module
from tests.tools import run

SAXPY = """
.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n)
{ .reg .pred %p<2>; .reg .b32 %r<9>; .reg .f32 %f<4>; .reg .b64 %rd<6>;
 ld.param.u32 %r4, [n]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %r1, %r1, %r2, %r3;
 setp.ge.s32 %p1, %r1, %r4; @%p1 bra END; ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.f32 %f1, [a];
 cvta.to.global.u64 %rd1, %rd1; cvta.to.global.u64 %rd2, %rd2; mul.wide.s32 %rd3, %r1, 4; add.s64 %rd1, %rd1, %rd3;
 add.s64 %rd2, %rd2, %rd3; ld.global.f32 %f2, [%rd1]; ld.global.f32 %f3, [%rd2]; fma.rn.f32 %f3, %f1, %f2, %f3;
 st.global.f32 [%rd2], %f3; END: ret; }
"""


@pytest.mark.parametrize("wave_lanes", [64, 1 << 15])
@pytest.mark.parametrize("seed", [None, 3])
def test_saxpy_on_arrays_in_place(wave_lanes: int, seed: int | None) -> None:
    source = np.random.default_rng(1)
    x, y = source.standard_normal(1000).astype(np.float32), source.standard_normal(1000).astype(np.float32)
    # The exact product and sum fit a double; one rounding follows, as in fma.
    expected = (np.float64(np.float32(3.3)) * x + y).astype(np.float32)
    program = loaded(module(SAXPY))
    program["saxpy"].launch(8, 128, (x, y, 3.3, 1000), wave_lanes=wave_lanes, seed=seed)
    assert np.abs(y - expected).max() <= np.spacing(np.abs(expected)).max()
    assert (y == expected).mean() > 0.999


def test_saxpy_by_the_short_form_counts_instructions() -> None:
    x, y = np.ones(100, np.float32), np.ones(100, np.float32)
    launched = loaded(module(SAXPY))["saxpy"][1, 128](x, y, np.float32(2), np.uint32(100))
    assert (y == 3).all()
    assert launched.executed == 128 * 7 + 100 * 13 + 28


def test_arrays_that_share_memory_share_it_in_the_machine() -> None:
    body = """
    ld.param.u64 %rd0, [a]; ld.param.u64 %rd1, [b]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 4;
    add.u64 %rd0, %rd0, %rd2; add.u64 %rd1, %rd1, %rd2; ld.global.u32 %r1, [%rd1]; bar.sync 0;
    st.global.u32 [%rd0], %r1;
    """
    words = np.arange(10, dtype=np.uint32)
    loaded(kernel(body, ".param .u64 a, .param .u64 b"))["k"][1, 8](words[2:], words[:8])
    assert words.tolist() == [0, 1, 0, 1, 2, 3, 4, 5, 6, 7]


def test_read_only_arrays_stay() -> None:
    words = np.zeros(4, np.uint32)
    words.flags.writeable = False
    loaded(kernel("ld.param.u64 %rd0, [out]; st.global.u32 [%rd0], 5;"))["k"][1, 1](words)
    assert not words.any()


COPY_PARAMETERS = """
.visible .entry k(.param .u64 out, .param .b32 a, .param .b64 b, .param .b8 c, .param .align 4 .b8 d[12])
{ .reg .b32 %r<6>; .reg .b64 %rd<4>; ld.param.u64 %rd0, [out]; ld.param.b32 %r0, [a]; ld.param.b64 %rd1, [b];
 ld.param.u8 %r1, [c]; ld.param.b32 %r2, [d+8]; st.global.b32 [%rd0], %r0; st.global.b64 [%rd0+8], %rd1;
 st.global.b32 [%rd0+16], %r1; st.global.b32 [%rd0+20], %r2; ret; }
"""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((1.5, -2.5, True, bytes(8) + b"abcd"), struct.pack("<f4xdI4s", 1.5, -2.5, 1, b"abcd")),
        ((-1, 2**64 - 1, 255, bytes(12)), struct.pack("<i4xQII", -1, 2**64 - 1, 255, 0)),
        ((np.float32(7), np.int64(-3), np.uint8(9), bytes(12)), struct.pack("<f4xqII", 7, -3, 9, 0)),
    ],
)
def test_numbers_take_the_type_of_their_parameter(arguments: tuple[object, ...], words: bytes) -> None:
    out = np.zeros(24, np.uint8)
    loaded(module(COPY_PARAMETERS))["k"].launch(1, 1, (out, *arguments))  # type: ignore[arg-type]
    assert out.tobytes() == words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 2), r"k takes 5 arguments \(.u64, .b32, .b64, .b8, 12 bytes\), 2 were given"),
        (
            (np.zeros(2), np.zeros(2), 1, 1, bytes(12)),
            "argument 2 of k is an array, the parameter is no pointer but 4 bytes",
        ),
        ((np.zeros((4, 4))[:, 1], 1, 1, 1, bytes(12)), "argument 1 of k is not contiguous"),
        ((np.zeros(4), 2**32, 1, 1, bytes(12)), "argument 2 of k is 4294967296, which does not fit into 4 bytes"),
        ((np.zeros(4), 1, 1, 1, bytes(11)), "argument 5 of k has 11 bytes, the parameter 12"),
        ((1.5, 1, 1, 1, bytes(12)), "argument 1 of k is 1.5, the parameter is an integer"),
        (
            (np.zeros(4), np.float64(1), 1, 1, bytes(12)),
            "argument 2 of k is a float64, the parameter is .b32 of 4 bytes",
        ),
        ((np.zeros(4), "x", 1, 1, bytes(12)), "argument 2 of k is a str, wanted an array, a number or bytes"),
    ],
)
def test_arguments_that_do_not_fit(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        loaded(module(COPY_PARAMETERS))["k"].launch(1, 1, arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("grid", "block", "shared", "message"),
    [
        (0, 1, 0, "grid is 0, wanted one to three positive numbers"),
        (1, (32, 33), 0, "block .* has 1056 threads, a block may have 1024"),
        (1, 64, 0, "block has 64 threads, the kernel allows 32"),
        (10**8, 32, 0, "3200000000 threads, the machine takes 268435456; .* minutes and more"),
        ((1, 70000), 1, 0, "is larger than a device takes"),
        (1, 32, 300000, "300000 bytes of shared memory, a block may have 232448"),
    ],
)
def test_launches_that_cannot_be(grid: int, block: int, shared: int, message: str) -> None:
    program = loaded(module(".visible .entry k() .maxntid 32 { ret; }"))
    with pytest.raises(LaunchError, match=message):
        program["k"].launch(grid, block, (), shared=shared)


def test_unknown_names_get_a_near_one() -> None:
    program = loaded(module(SAXPY + "\n.global .u32 COUNTER;"))
    with pytest.raises(LaunchError, match="no kernel saxpi, did you mean saxpy; it has: saxpy"):
        program["saxpi"]
    with pytest.raises(LaunchError, match="no variable COUNTERS, did you mean COUNTER"):
        program.variables["COUNTERS"]


HEAP = """
.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
.visible .entry k(.param .u64 out, .param .u32 frees)
{ .reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %rd<6>;
 ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 8; add.u64 %rd0, %rd0, %rd1;
 { .param .b64 a; .param .b64 b; st.param.b64 [a], 64; call.uni (b), malloc, (a); ld.param.b64 %rd2, [b]; }
 st.u32 [%rd2+60], %r0; ld.u32 %r1, [%rd2+60]; st.global.u64 [%rd0], %rd2;
 ld.param.u32 %r2, [frees]; L: setp.eq.u32 %p1, %r2, 0; @%p1 bra END;
 { .param .b64 a; st.param.b64 [a], %rd2; call.uni free, (a); } sub.u32 %r2, %r2, 1; bra L;
 END: @%p1 ld.u32 %r1, [%rd2]; ret; }
"""


def test_the_device_heap_gives_each_thread_its_own() -> None:
    blocks = np.zeros(40, np.uint64)
    program = loaded(module(HEAP))
    program["k"][1, 40](blocks, 0)
    assert len(set(blocks.tolist())) == 40
    assert not (blocks % 16).any()
    assert program.arena.heap_bytes == 40 * 64, "blocks outlive the launch"


@pytest.mark.parametrize(
    ("frees", "message"),
    [(1, "use after free: 4 bytes .* 0 bytes into heap block"), (2, "free of 0x[0-9a-f]+, which was freed before")],
)
def test_misuse_of_the_heap_is_a_fault(frees: int, message: str) -> None:
    with pytest.raises(KernelFault, match=message):
        loaded(module(HEAP))["k"][1, 8](np.zeros(8, np.uint64), frees)


PRINT = """
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.global .align 1 .b8 format[48] = {37, 100, 32, 37, 53, 46, 49, 102, 124, 37, 45, 52, 120, 124, 37, 108, 108, 117,
 32, 37, 115, 37, 37, 10, 0};
.global .align 1 .b8 name[4] = {103, 112, 117, 0};
.global .align 1 .b8 check[6] = {105, 32, 60, 32, 51, 0};
.visible .entry k() { .local .align 8 .b8 args[40]; .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %rd<6>; .reg .f64 %fd<2>;
 mov.u64 %rd0, args; cvta.local.u64 %rd1, %rd0; mov.u32 %r0, %tid.x; st.local.u32 [%rd0], %r0; cvt.rn.f64.u32 %fd0, %r0;
 st.local.f64 [%rd0+8], %fd0; st.local.u32 [%rd0+16], 255; st.local.u64 [%rd0+24], -1; mov.u64 %rd2, name;
 st.local.u64 [%rd0+32], %rd2; mov.u64 %rd3, format;
 { .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], %rd3; st.param.b64 [a], %rd1;
   call.uni (r), vprintf, (f, a); ld.param.b32 %r1, [r]; }
 setp.lt.u32 %p, %r0, 3; @%p ret; mov.u64 %rd4, check;
 { .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 s; st.param.b64 [m], %rd4;
   st.param.b64 [f], %rd2; st.param.b32 [l], 12; st.param.b64 [n], %rd2; st.param.b64 [s], 1;
   call.uni __assertfail, (m, f, l, n, s); } ret; }
"""


def test_printing_and_assertions() -> None:
    program = loaded(module(PRINT))
    assert program["k"][1, 2]().output == "".join(f"{i} {i:5.1f}|ff  |{2**64 - 1} gpu%\n" for i in range(2))
    with pytest.raises(KernelFault, match="assertion `i < 3` failed at gpu:12, in gpu") as caught:
        program["k"][1, 4]()
    assert caught.value.thread == (3, 0, 0)
    assert caught.value.output.startswith("0   0.0|ff  |")


def test_fat_binaries(tmp_path: Path) -> None:
    text = module(SAXPY, "sm_80")
    (tmp_path / "a.ptx").write_text(text)
    done = run(["ptxas", "-arch=sm_80", "a.ptx", "-o", "a.cubin"], tmp_path)
    assert done.returncode == 0, done.stderr
    images = {"both": ["elf,file=a.cubin,sm=80", "ptx,file=a.ptx,sm=80"], "cubin": ["elf,file=a.cubin,sm=80"]}
    for name, entries in images.items():
        options = [f"--image3=kind={entry}" for entry in entries]
        done = run(["fatbinary", "--create", f"{name}.fatbin", *options], tmp_path)
        assert done.returncode == 0, done.stderr
    x, y = np.ones(8, np.float32), np.ones(8, np.float32)
    load(tmp_path / "both.fatbin")["saxpy"][1, 8](x, y, 4.0, 8)
    assert (y == 5).all()
    with pytest.raises(InputError, match=r"cubin\.fatbin: holds no PTX, only sm_80") as caught:
        load(tmp_path / "cubin.fatbin")
    assert caught.value.diagnostic.cure == "link it with `--arch compute_80` as well"
    with pytest.raises(InputError, match=r"a\.cubin: is a cubin or object file"):
        load(tmp_path / "a.cubin")


def test_names_in_messages_and_the_newest_ptx() -> None:
    with pytest.raises(InputError, match=r"x\.ptx: line 1: '§' is no PTX"):
        load("§".encode(), name="x.ptx")
    with pytest.raises(InputError, match="program: is not PTX: not UTF-8 text"):
        load(b"\xff\xfe")


def test_linked_kernels_run_on_both_routes(tmp_path: Path) -> None:
    """Textual IR through the link itself: a sum over a slice, as rustc writes it."""
    (tmp_path / "k.ll").write_text(LINKED)
    for route in ("llvm", "nvvm"):
        done = run(["rglink", "k.ll", "-o", "k.ptx", f"--codegen={route}", "--arch=sm_80"], tmp_path)
        assert done.returncode == 0, done.stderr
        words, out = np.arange(1000, dtype=np.uint64), np.zeros(64, np.uint64)
        load(tmp_path / "k.ptx")["total"][2, 32](words, 1000, out)
        assert (out == [words[thread::64].sum() for thread in range(64)]).all()


LINKED = """
target triple = "nvptx64-nvidia-cuda"
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
define ptx_kernel void @total(ptr %words, i64 %n, ptr %out) {
start:
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %d = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %g = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  %base = mul i32 %b, %d
  %me32 = add i32 %base, %t
  %me = zext i32 %me32 to i64
  %all32 = mul i32 %d, %g
  %all = zext i32 %all32 to i64
  br label %head
head:
  %i = phi i64 [ %me, %start ], [ %next, %body ]
  %sum = phi i64 [ 0, %start ], [ %more, %body ]
  %on = icmp ult i64 %i, %n
  br i1 %on, label %body, label %end
body:
  %p = getelementptr i64, ptr %words, i64 %i
  %v = load i64, ptr %p, align 8
  %more = add i64 %sum, %v
  %next = add i64 %i, %all
  br label %head
end:
  %q = getelementptr i64, ptr %out, i64 %me
  store i64 %sum, ptr %q, align 8
  ret void
}
"""
