"""The four steps on what the real rustc writes, through LLVM's optimization to PTX."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rglink.diagnostics import Diagnostics
from rglink.ir import Module
from rglink.irtext import ModuleText, read_function
from rglink.lto.device_abi import prepare_crate
from tests.lto.program import apply_device_abi, expose
from tests.lto.rustc_output import PROTECTING, compile_crate
from tests.lto.test_spaces import generic_accesses

pytestmark = pytest.mark.rust

EARLY = """
#[unsafe(link_section = ".rglink.shared")]
static FLAG: Shared<u32> = Shared::uninit();
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn early(x: &[u32], out: *mut u32) {
    let t = _thread_idx_x() as usize;
    *FLAG.get() = 0;
    _syncthreads();
    if x[t] == 7 { *FLAG.get() = 1; }
    _syncthreads();
    *out.add(t) = *FLAG.get();
}
"""
TILE = """
#[unsafe(link_section = ".rglink.shared")]
static TILE: Shared<[f32; 256]> = Shared::uninit();
#[unsafe(link_section = ".rglink.shared")]
static COUNT: Shared<AtomicU32> = Shared::uninit();
#[repr(C)] #[derive(Clone, Copy)]
pub struct Args { source: *const f32, len: usize, sum: *mut f32 }
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn reduce(args: Args, total: &AtomicU32, ys: &mut [f32]) {
    let t = _thread_idx_x() as usize;
    let tile = TILE.get() as *mut f32;
    if t < args.len { *tile.add(t) = *args.source.add(t); }
    (*COUNT.get()).fetch_add(1, Ordering::Relaxed);
    _syncthreads();
    let mut width = _block_dim_x() as usize / 2;
    while width > 0 {
        if t < width { *tile.add(t) += *tile.add(t + width); }
        _syncthreads();
        width /= 2;
    }
    for (y, x) in ys.iter_mut().zip((*TILE.get()).iter()) { *y += *x; }
    if t == 0 {
        *args.sum = *tile;
        total.fetch_add((*COUNT.get()).load(Ordering::Relaxed), Ordering::AcqRel);
    }
}
"""
# Barriers of three kinds where jump threading, unrolling and tail merging would like to copy or move them.
BARRIERS = """
#[inline(never)]
unsafe fn meet(n: u32) { asm!("bar.sync {0};", in(reg32) n); }
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn barriers(out: *mut u32, n: u32) {
    let t = _thread_idx_x() as u32;
    if t < n { *out = 1; }
    _syncthreads();
    if t < n { *out.add(t as usize) = 2; }
    asm!("bar.sync 1;");
    if t < n { *out.add(t as usize) += 3; meet(2); }
    let mut i = 0;
    while i < 3 { asm!("bar.sync 3;"); *out.add(i) += t; i += 1; }
}
"""


def linked(*modules: Module) -> str:
    """The PTX of a program of these crates, each prepared and optimized as `rgcc` does it."""
    for module in modules:
        diags = Diagnostics()
        prepare_crate(module, diags)
        diags.checkpoint()
        module.verify()
        module.optimize(3, "sm_80")
    program = modules[0]
    for other in modules[1:]:
        program.link_in(other)
    diags = Diagnostics()
    apply_device_abi(program, diags)
    assert not diags.items
    kernels = [
        item.name
        for item in ModuleText.parse(program.text()).of_kind("define")
        if read_function(item.head).calling_convention == "ptx_kernel"
    ]
    program.internalize(kernels)
    program.run("globaldce")
    program.optimize(3, "sm_80")
    expose(program, diags)
    program.verify()
    return program.emit_ptx("sm_80", "", 3)


def barriers(ptx: str) -> list[str]:
    """The block barriers in their order, by number (registers as `r`)."""
    found = re.findall(r"^\s*(?:@%p\d+ )?(?:bar\.sync|barrier\.sync(?:\.aligned)?)\s+([^;,]+);", ptx, re.MULTILINE)
    return ["r" if name.strip().startswith("%") else name.strip() for name in found]


def test_the_early_exit_flag_stays_shared(tmp_path: Path) -> None:
    ptx = linked(compile_crate(tmp_path, "k", EARLY))
    assert ptx.count("st.shared.b32") == 2
    assert ptx.count("ld.shared.b32") == 1
    assert barriers(ptx) == ["0", "0"]
    assert not generic_accesses(ptx)
    order = [ptx.index("st.shared"), ptx.index("barrier"), ptx.rindex("st.shared"), ptx.rindex("barrier")]
    assert [*order, ptx.index("ld.shared")] == sorted([*order, ptx.index("ld.shared")])


def test_without_the_steps_nothing_is_shared(tmp_path: Path) -> None:
    module = compile_crate(tmp_path, "k", EARLY)
    module.optimize(3, "sm_80")
    ptx = module.emit_ptx("sm_80", "", 3)
    assert ".shared" not in ptx
    assert generic_accesses(ptx)


@pytest.mark.parametrize("debug", [(), ("-Cdebuginfo=2",), ("-Cdebuginfo=line-tables-only",)])
def test_every_access_is_in_its_space(tmp_path: Path, debug: tuple[str, ...]) -> None:
    ptx = linked(compile_crate(tmp_path, "k", TILE, (*PROTECTING, "-Copt-level=3", *debug)))
    assert not generic_accesses(ptx)
    for access in ("ld.shared", "st.shared", "ld.global", "st.global", "atom.shared.add", "atom.global.add"):
        assert access in ptx, access


@pytest.mark.parametrize("level", ["0", "2", "3"])
def test_barriers_are_one_for_one(tmp_path: Path, level: str) -> None:
    module = compile_crate(tmp_path, "k", BARRIERS, (*PROTECTING, f"-Copt-level={level}"))
    assert barriers_in_ir(module) == 4
    ptx = linked(module)
    # The loop of three rounds may be unrolled, which keeps each thread's sequence of barriers.
    found = barriers(ptx)
    assert [name for name in found if name != "3"] in (["r", "0", "1"], ["0", "1", "2"])
    assert found.count("3") in (1, 3)


def barriers_in_ir(module: Module) -> int:
    body = "\n".join(line for item in ModuleText.parse(module.text()).of_kind("define") for line in item.body)
    return body.count("barrier.cta.sync") + body.count('"bar.sync')


def test_a_generic_kernels_shared_static_is_shared_in_the_crate_that_instantiates_it(tmp_path: Path) -> None:
    dep = """
#[unsafe(link_section = ".rglink.shared")]
static PART: Shared<[f32; 64]> = Shared::uninit();
#[unsafe(link_section = ".rglink.shared")]
static POOL: Shared<[Wide; 0]> = Shared::uninit();
#[repr(C, align(16))] pub struct Wide([f32; 4]);
pub unsafe fn turn<T: Copy + Into<f32>>(i: usize, x: T) -> f32 {
    let part = PART.get() as *mut f32;
    let pool = POOL.get() as *mut f32;
    *part.add(i) = x.into();
    *pool.add(i) = 1.0;
    _syncthreads();
    *part.add(i ^ 1) + *pool.add(i ^ 1)
}
"""
    app = """
#[repr(C, align(128))] pub struct Wider([f32; 32]);
#[unsafe(link_section = ".rglink.shared")]
static MINE: Shared<[Wider; 0]> = Shared::uninit();
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn run(out: *mut f32, x: *const f32) {
    let t = _thread_idx_x() as usize;
    *(MINE.get() as *mut f32).add(t + 64) = 2.0;
    *out.add(t) = dep::turn(t, *x.add(t));
}
"""
    images: set[str] = set()
    for swap in (False, True):
        modules = [compile_crate(tmp_path, "dep", dep), compile_crate(tmp_path, "app", app, externs=["dep"])]
        ptx = linked(*(reversed(modules) if swap else modules))
        assert not generic_accesses(ptx)
        assert ptx.count(".extern .shared .align 128 .b8 __rglink_dynamic_shared[];") == 1
        assert len(re.findall(r"\.shared .*PART", ptx)) == 1
        images.add(ptx)
    assert len(images) == 1


def test_preparing_twice_is_preparing_once(tmp_path: Path) -> None:
    module = compile_crate(tmp_path, "k", TILE)
    prepare_crate(module, Diagnostics())
    once = ModuleText.parse(module.text()).render()
    prepare_crate(module, Diagnostics())
    assert ModuleText.parse(module.text()).render() == once


def test_a_pure_shuffle_is_refused_with_its_line(tmp_path: Path) -> None:
    source = """
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn shuffle(out: *mut u32) {
    let v: u32;
    asm!("shfl.sync.bfly.b32 {0}, {1}, 1, 31, 0xffffffff;", out(reg32) v, in(reg32) _thread_idx_x(), options(pure, nomem));
    if _thread_idx_x() == 0 { *out = v; }
}
"""  # noqa: E501
    module = compile_crate(tmp_path, "k", source, (*PROTECTING, "-Copt-level=3", "-Cdebuginfo=1"))
    diags = Diagnostics()
    prepare_crate(module, diags)
    (item,) = diags.items
    assert item.slug == "pure-collective"
    assert "`shfl.sync.bfly.b32`" in item.message
    assert re.fullmatch(r"in shuffle of crate k \(k\.rs:\d+\)", item.places[0])


def test_an_initialised_shared_static_is_refused(tmp_path: Path) -> None:
    source = """
#[unsafe(link_section = ".rglink.shared")]
static ZEROED: Shared<[u32; 4]> = Shared(UnsafeCell::new(MaybeUninit::zeroed()));
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn k(out: *mut u32) { *out = (*(ZEROED.get()))[1]; }
"""
    module = compile_crate(tmp_path, "k", source)
    diags = Diagnostics()
    prepare_crate(module, diags)
    assert [(item.slug, item.places) for item in diags.items] == [("initialised-shared", ("in crate k",))]
    assert diags.items[0].message.startswith("shared static `k::ZEROED` has an initial value (zeroinitializer)")
