"""What real crates become when they are resolved and merged."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rglink.demangle import path_of
from rglink.diagnostics import Diagnostics
from rglink.frontend.sysroot import Sysroot
from rglink.ir import Module
from rglink.lto.gc import gc_report
from rglink.lto.load import load_sources
from rglink.lto.merge import merge_modules
from rglink.lto.mismatch import check_mismatches
from rglink.lto.resolve import resolve_symbols
from rglink.lto.roots import RootRequest, choose_roots
from rglink.lto.rust_runtime import define_rust_runtime, plain_name
from rglink.lto.undefined import check_undefined
from rglink.objfmt.input_file import open_input
from tests.lto.linking import Outcome, lines, rendered

pytestmark = pytest.mark.rust

# The fixture in conftest.py.
Rgcc = Callable[..., int]

HEAD = "#![no_std]\n#![feature(abi_ptx)]\n"


def program(paths: list[Path], sysroot: Sysroot, request: RootRequest | None = None) -> Outcome:
    """The merged program of `.rgo` files and the sysroot, checked as a link does."""
    diags = Diagnostics()
    inputs = load_sources([open_input(str(path)) for path in (*paths, *sysroot.rlibs)], diags)
    resolution = resolve_symbols(inputs, choose_roots(inputs, request or RootRequest(), diags), diags)
    check_mismatches(resolution, diags)
    module = merge_modules(resolution, inputs, diags)
    define_rust_runtime(module)
    check_undefined(module, resolution, inputs, diags)
    module.verify()
    return Outcome(inputs, resolution, module, diags)


DEP = """
#[inline(never)] pub fn foo() -> i32 { 41 }
#[inline(never)] pub fn unused(x: &[u32], i: usize) -> u32 { x[i] }
pub unsafe extern "ptx-kernel" fn scale<T: core::ops::Mul<Output = T> + Copy>(x: *mut T, by: T) {
    unsafe { *x = *x * by; }
}
#[unsafe(no_mangle)] pub unsafe extern "ptx-kernel" fn in_library(out: *mut i32) { unsafe { *out = foo(); } }
#[unsafe(no_mangle)] pub static TABLE: [u32; 4] = [1, 2, 3, 4];
"""
APP = """
pub static KERNELS: [unsafe extern "ptx-kernel" fn(*mut f32, f32); 1] = [dep::scale::<f32>];
#[unsafe(no_mangle)] pub unsafe extern "ptx-kernel" fn NAME(out: *mut i32, i: usize) {
    unsafe { *out = dep::foo() + dep::TABLE[i] as i32; }
}
"""


@pytest.fixture
def crates(rgcc: Rgcc, tmp_path: Path) -> list[Path]:
    """dep, and two crates that each make the same instance of its generic kernel."""
    assert rgcc("-c", "dep.rs", "-o", "dep.rgo", sources={"dep.rs": HEAD + DEP}) == 0
    for name in ("one", "two"):
        source = {f"{name}.rs": HEAD + APP.replace("NAME", name)}
        assert rgcc("-c", f"{name}.rs", "-o", f"{name}.rgo", "--extern", "dep=dep.rgo", sources=source) == 0
    return [tmp_path / f"{name}.rgo" for name in ("dep", "one", "two")]


def test_one_program_from_three_crates(crates: list[Path], sysroot: Sysroot) -> None:
    outcome = program(crates, sysroot)
    assert rendered(outcome.diags) == []
    external = {name for name, linkage in outcome.defined().items() if linkage == "external"}
    assert sorted(path_of(name) for name in external) == ["TABLE", "dep::scale", "in_library", "one", "two"]
    assert outcome.module.undefined_names() == set()
    readable = {path_of(name) for name in outcome.defined()}
    assert "dep::foo" in readable
    assert "dep::unused" not in readable
    gone = [(entry.name, entry.reason) for entry in gc_report(outcome.resolution).gone if entry.kind == "kernel"]
    assert [name for name, _ in gone] == ["dep::scale::<f32>"]
    assert gone[0][1].startswith("the same instance as _R")


def test_the_order_of_the_inputs_does_not_show(crates: list[Path], sysroot: Sysroot) -> None:
    assert len({program(list(order), sysroot).module.bitcode() for order in itertools.permutations(crates)}) == 1


@pytest.mark.skipif(shutil.which("llvm-link-22") is None, reason="llvm-link-22 (package llvm-22) is missing")
def test_llvms_linker_keeps_the_same_definitions(crates: list[Path], sysroot: Sysroot, tmp_path: Path) -> None:
    # rustc makes instances of generic kernels local, so that LLVM's linker would drop them.
    outcome = program(crates, sysroot, RootRequest(drop=("dep::scale",)))
    modules = [(source.name, source.data) for source in outcome.inputs.sources]
    modules += [(m.name, m.data) for archive in outcome.inputs.archives for m in archive.members]
    files: list[str] = []
    for number, (_, data) in enumerate(modules):
        files.append(f"m{number}.bc")
        (tmp_path / files[-1]).write_bytes(data)
    roots = ",".join([*(k.export for k in outcome.resolution.roots.kernels), *outcome.resolution.roots.variables])
    subprocess.run(["llvm-link-22", "-o", "all.bc", *files], cwd=tmp_path, check=True, capture_output=True)
    passes = ["-passes=internalize,globaldce", f"-internalize-public-api-list={roots}"]
    subprocess.run(["opt-22", *passes, "all.bc", "-o", "live.bc"], cwd=tmp_path, check=True)
    theirs = Module.parse_bitcode((tmp_path / "live.bc").read_bytes(), "live.bc")

    def definitions(module: Module) -> Counter[str]:
        """Readable names: the linkers number colliding local names differently. Our runtime is not in theirs."""
        names = (g.name for g in module.globals() if not g.is_declaration and not plain_name(g.name))
        return Counter(re.sub(r"\.?\d+$", "", path_of(name)) for name in names)

    assert definitions(outcome.module) == definitions(theirs)


def test_kernels_are_chosen_by_path(crates: list[Path], sysroot: Sysroot) -> None:
    outcome = program(crates, sysroot, RootRequest(keep=("dep::scale*", "one")))
    assert rendered(outcome.diags) == []
    assert sorted(kernel.path for kernel in outcome.resolution.roots.kernels) == ["dep::scale", "one"]


def test_an_undefined_function_is_told_with_crate_and_chain(rgcc: Rgcc, tmp_path: Path, sysroot: Sysroot) -> None:
    source = """
        unsafe extern "C" { fn bar(); fn never(); }
        #[inline(never)] fn inner() { unsafe { bar() } }
        #[inline(never)] pub fn dead() { unsafe { never() } }
        #[unsafe(no_mangle)] pub unsafe extern "ptx-kernel" fn k() { inner() }
    """
    assert rgcc("-c", "app.rs", "-o", "app.rgo", "--lineinfo", sources={"app.rs": HEAD + source}) == 0
    path = tmp_path / "app.rgo"
    outcome = program([path], sysroot)
    assert rendered(outcome.diags) == [
        lines(
            "rglink: error: undefined symbol: bar [undefined-symbol]",
            f">>> referenced by app::inner at app.rs:5 in {path} (crate app)",
            ">>> chain: k -> app::inner -> bar",
        )
    ]


def test_two_builds_of_one_crate_live_side_by_side(rgcc: Rgcc, tmp_path: Path, sysroot: Sysroot) -> None:
    for version in ("1", "2"):
        dep = f"#![no_std]\n#[inline(never)] pub fn number() -> u32 {{ {version} }}"
        assert (
            rgcc("-c", "dep.rs", "-o", "dep.rgo", "--metadata", version, folder=version, sources={"dep.rs": dep}) == 0
        )
        user = f"""{HEAD}#[unsafe(no_mangle)] pub unsafe extern "ptx-kernel" fn k{version}(out: *mut u32) {{
            unsafe {{ *out = dep::number(); }} }}"""
        arguments = ("-c", "user.rs", "-o", "user.rgo", "--crate-name", f"user{version}", "--extern", "dep=dep.rgo")
        assert rgcc(*arguments, folder=version, sources={"user.rs": user}) == 0
    outcome = program([tmp_path / v / f"{n}.rgo" for v in "12" for n in ("dep", "user")], sysroot)
    assert rendered(outcome.diags) == []
    assert sorted(path_of(name) for name in outcome.defined()) == ["dep::number", "dep::number", "k1", "k2"]


def test_alloc_links_against_the_runtime_of_the_link(rgcc: Rgcc, tmp_path: Path, sysroot: Sysroot) -> None:
    source = """
        extern crate alloc;
        #[unsafe(no_mangle)] pub unsafe extern "ptx-kernel" fn k(out: *mut u64, n: u64) {
            let squares: alloc::vec::Vec<u64> = (0..n).map(|i| i * i).collect();
            unsafe { *out = squares.iter().sum(); }
        }
    """
    assert rgcc("-c", "app.rs", "-o", "app.rgo", sources={"app.rs": HEAD + source}) == 0
    outcome = program([tmp_path / "app.rgo"], sysroot)
    assert rendered(outcome.diags) == []
    assert outcome.module.undefined_names() == {"malloc", "free"}
