"""rgcc on real crates: what is in the `.rgo`, what crosses crates, what it says."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rglink.frontend.rustc import Rustc
from rglink.frontend.sysroot import Sysroot
from rglink.ir import Module
from rglink.objfmt.rgo import Rgo, RgoReader, read_rgo, write_rgo

pytestmark = pytest.mark.rust

# The fixture in conftest.py.
Rgcc = Callable[..., int]

BASE = """\
#![no_std]
pub trait Scale { fn scale(self, by: u32) -> Self; }
impl Scale for u32 { fn scale(self, by: u32) -> u32 { self * by } }
impl Scale for u64 { fn scale(self, by: u32) -> u64 { self * by as u64 } }
pub struct Window<T>(pub T);
#[inline(never)]
pub fn apply<T: Scale, F: Fn(T) -> T>(x: T, f: F) -> T { f(x.scale(3)) }
"""
MID = """\
#![no_std]
pub use base::Window;
#[inline(never)]
pub fn twice<T: base::Scale + Copy>(w: Window<T>) -> T { base::apply(w.0, |x| x.scale(2)) }
#[inline(never)]
pub fn plain(x: u32) -> u32 { twice(Window(x)) ^ 1 }
"""
APP = """\
#![no_std]
#![feature(abi_ptx)]
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn app(x: u64, out: *mut u64) {
    unsafe { *out = mid::twice(mid::Window(x)) + mid::plain(x as u32) as u64; }
}
"""
KERNEL = """\
#![no_std]
#![feature(abi_ptx)]
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn k(out: *mut u32) { unsafe { *out = 7; } }
"""


def reader(path: Path) -> RgoReader:
    return read_rgo(path.name, path.read_bytes())


def text_of(bitcode: bytes) -> str:
    return Module.parse_bitcode(bitcode, "test").text()


def test_generics_and_closures_cross_three_crates_by_rgo_alone(rgcc: Rgcc, tmp_path: Path) -> None:
    assert rgcc("-c", "base.rs", "-o", "base.rgo", folder="one", sources={"base.rs": BASE}) == 0
    sources = {"mid.rs": MID}
    assert rgcc("-c", "mid.rs", "-o", "mid.rgo", "--extern", "base=base.rgo", folder="one", sources=sources) == 0
    (tmp_path / "two").mkdir()
    (tmp_path / "one/mid.rgo").rename(tmp_path / "two/m.rgo")
    for file in (tmp_path / "one").iterdir():
        file.unlink()
    # `base` is not named: it is in mid's file.
    assert rgcc("-c", "app.rs", "-o", "app.rgo", "--extern", "mid=m.rgo", folder="two", sources={"app.rs": APP}) == 0

    app = reader(tmp_path / "two/app.rgo")
    assert [entry.crate for entry in app.metadata()] == ["app", "base", "mid"]
    symbols = {symbol.name: symbol for symbol in app.summary().symbols}
    assert symbols["app"].kind == "kernel"
    defined = " ".join(name for name, symbol in symbols.items() if symbol.is_definition)
    undefined = [name for name, symbol in symbols.items() if symbol.binding == "undefined"]
    assert "3mid5twice" in defined, "the instance for u64 belongs to the crate that made it"
    assert [name for name in undefined if "3mid5plain" in name], "what is not generic stays in its own crate"


def test_a_crate_may_be_used_under_another_name_and_twice(rgcc: Rgcc, tmp_path: Path) -> None:
    source = "#![no_std]\npub fn f() -> u32 { one::f() + two::f() }\n"
    assert rgcc("-c", "lib.rs", "-o", "lib.rgo", sources={"lib.rs": "#![no_std]\npub fn f() -> u32 { 1 }\n"}) == 0
    externs = ("--extern", "one=lib.rgo", "--extern", "two=lib.rgo")
    assert rgcc("-c", "use.rs", "-o", "use.rgo", *externs, sources={"use.rs": source}) == 0
    assert [entry.crate for entry in reader(tmp_path / "use.rgo").metadata()] == ["use", "lib"]


def test_alloc_panics_and_wide_and_narrow_numbers(rgcc: Rgcc, tmp_path: Path) -> None:
    source = """\
#![no_std]
#![feature(abi_ptx, f16)]
extern crate alloc;
use alloc::{collections::BTreeMap, string::String, vec::Vec};
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn k(x: *const u32, n: usize, wide: *mut u128, half: *mut f16) {
    unsafe {
        let xs: Vec<u32> = (0..n).map(|i| *x.add(i)).collect();
        let mut names: BTreeMap<u32, String> = BTreeMap::new();
        for &each in &xs { names.entry(each).or_default().push('x'); }
        *wide = (xs[3] as u128) * *wide / names.len() as u128;
        *half = *half * xs[0] as f16;
        names.get(&7).expect("seven").chars().count();
    }
}
"""
    assert rgcc("-c", "k.rs", "-o", "k.rgo", sources={"k.rs": source}) == 0
    found = reader(tmp_path / "k.rgo")
    undefined = [symbol.name for symbol in found.summary().symbols if symbol.binding == "undefined"]
    assert any(name.endswith("___rustc12___rust_alloc") for name in undefined)
    assert any("panic_bounds_check" in name for name in undefined)
    text = text_of(found.optimized())
    assert "fmul half" in text
    assert "i128" in text


GUARDED = """\
#![no_std]
#![feature(abi_ptx, stdarch_nvptx)]
use core::{arch::nvptx::{_syncthreads, _thread_idx_x}, cell::UnsafeCell, mem::MaybeUninit};
pub struct Shared<T>(UnsafeCell<MaybeUninit<T>>);
unsafe impl<T> Sync for Shared<T> {}
#[unsafe(link_section = ".rglink.shared")]
static FLAG: Shared<u32> = Shared(UnsafeCell::new(MaybeUninit::uninit()));
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn guarded(xs: *const u32, n: u32, out: *mut u32) {
    unsafe {
        let (t, flag) = (_thread_idx_x() as u32, FLAG.0.get() as *mut u32);
        *flag = 0;
        _syncthreads();
        if t < n && *xs.add(t as usize) == 7 { *flag = 1; }
        _syncthreads();
        if t < n { *out.add(t as usize) = *flag; }
    }
}
"""


@pytest.mark.parametrize("level", ["0", "1", "2", "3", "s"])
def test_barriers_and_the_shared_flag_are_as_written(rgcc: Rgcc, tmp_path: Path, level: str) -> None:
    assert rgcc("-c", "k.rs", "-o", "k.rgo", f"-O{level}", sources={"k.rs": GUARDED}) == 0
    found = reader(tmp_path / "k.rgo")
    assert found.producer().protected
    [flag] = [symbol for symbol in found.summary().symbols if "FLAG" in symbol.name]
    assert flag.addrspace == 3
    for bitcode in (found.unoptimized(), found.optimized()):
        text = text_of(bitcode)
        kernel = text[text.index("define ptx_kernel") :].split("\n}", 1)[0]
        # By name at the levels where rustc does not inline the function from core.
        assert len(re.findall(r"call void @(?:llvm\.nvvm\.barrier|\w*_syncthreads)", kernel)) == 2
        # The store of 0, the store of 1 and the load.
        assert len(re.findall(r"(?:load|store) .*FLAG", kernel)) == 3


def test_unoptimized_bitcode_is_unoptimized_and_marked(rgcc: Rgcc, tmp_path: Path) -> None:
    assert rgcc("-c", "k.rs", "-o", "k.rgo", sources={"k.rs": GUARDED}) == 0
    text = text_of(reader(tmp_path / "k.rgo").unoptimized())
    groups = re.findall(r"^define .* (#\d+)(?: .*)?\{$", text, re.MULTILINE)
    assert groups
    for group in groups:
        attributes = re.search(rf"^attributes {group} = \{{(.*)\}}$", text, re.MULTILINE)
        assert attributes is not None
        assert "noredzone" in attributes[1]
        assert "nofree" not in attributes[1], "a mark of LLVM's optimizer"


@pytest.mark.parametrize(("option", "kind"), [(None, None), ("--lineinfo", "LineTablesOnly"), ("-g", "FullDebug")])
def test_debug_info_as_asked(rgcc: Rgcc, tmp_path: Path, option: str | None, kind: str | None) -> None:
    extra = () if option is None else (option,)
    assert rgcc("-c", "k.rs", "-o", "k.rgo", *extra, sources={"k.rs": KERNEL}) == 0
    text = text_of(reader(tmp_path / "k.rgo").optimized())
    assert re.findall(r"emissionKind: (\w+)", text) == ([] if kind is None else [kind])


@pytest.mark.parametrize("debug", [(), ("-g",)])
def test_same_bytes_in_another_folder_and_under_another_hash_seed(
    sysroot: Sysroot, tmp_path: Path, debug: tuple[str, ...]
) -> None:
    made = []
    for seed, folder in (("1", "a"), ("2", "b/deeper"), ("3", "with space=x")):
        place = tmp_path / folder
        place.mkdir(parents=True)
        for name, text in (("base.rs", BASE), ("mid.rs", MID), ("app.rs", APP)):
            (place / name).write_text(text)
        for crate, *externs in (("base",), ("mid", "base"), ("app", "base", "mid")):
            # The second folder gives the source by an absolute path.
            source = str(place / f"{crate}.rs") if seed == "2" else f"{crate}.rs"
            command = ["-c", source, "-o", f"{crate}.rgo", *debug]
            command += [f"--extern={each}={each}.rgo" for each in externs]
            subprocess.run(RGCC + command, cwd=place, env=os.environ | {"PYTHONHASHSEED": seed}, check=True)
        made.append([(place / f"{crate}.rgo").read_bytes() for crate in ("base", "mid", "app")])
    assert made[0] == made[1] == made[2]


RGCC = [sys.executable, "-c", "import sys; from rglink.frontend.rgcc import main; sys.exit(main())"]
WRONG = '#![no_std]\npub fn f() -> u32 {\n    "text"\n}\n'


def test_rustc_speaks_for_itself(rgcc: Rgcc, tmp_path: Path, capfd: pytest.CaptureFixture[str], rustc: Rustc) -> None:
    (tmp_path / "k.rgo").write_bytes(b"older")
    assert rgcc("-c", "k.rs", "-o", "k.rgo", sources={"k.rs": WRONG}) == 1
    ours = capfd.readouterr()
    command = [str(rustc.path), "--crate-type=lib", "--emit=metadata", "--edition=2021", "k.rs"]
    theirs = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ours.err == theirs.stderr
    assert "error[E0308]: mismatched types\n --> k.rs:3:5" in ours.err
    assert ours.out == ""
    assert (tmp_path / "k.rgo").read_bytes() == b"older"
    assert sorted(os.listdir(tmp_path)) == ["k.rgo", "k.rs"]


def test_rustc_speaks_in_colours_to_a_terminal(sysroot: Sysroot, tmp_path: Path) -> None:
    (tmp_path / "k.rs").write_text(WRONG)
    try:
        ours, theirs = pty.openpty()
    except OSError as error:
        pytest.skip(f"no terminal can be opened here: {error}")
    running = subprocess.Popen([*RGCC, "-c", "k.rs", "-o", "k.rgo"], cwd=tmp_path, stderr=theirs)
    os.close(theirs)
    said = b""
    try:
        while piece := os.read(ours, 4096):
            said += piece
    except OSError:  # Linux's way to say that the other end is closed
        pass
    assert running.wait() == 1
    assert b"\x1b[1m\x1b[91merror[E0308]\x1b[0m" in said


def test_warnings_are_shown_and_do_not_stop(rgcc: Rgcc, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert rgcc("-c", "k.rs", "-o", "k.rgo", sources={"k.rs": "#![no_std]\nfn idle() {}\n"}) == 0
    assert "warning: function `idle` is never used" in capfd.readouterr().err
    assert (tmp_path / "k.rgo").exists()


def test_cfg_edition_and_arguments_for_rustc_arrive(rgcc: Rgcc, tmp_path: Path) -> None:
    source = """\
#![no_std]
#[cfg(not(all(fast, feature = "wide", by_hand)))]
compile_error!("a cfg is missing");
#[unsafe(no_mangle)]
pub fn f(x: Option<u32>, y: Option<u32>) -> u32 { if let Some(a) = x && let Some(b) = y { a + b } else { 0 } }
"""
    options = ("--cfg", "fast", "--cfg", 'feature="wide"', "--edition", "2024", "--arch", "sm_90")
    assert rgcc("-c", "k.rs", "-o", "k.rgo", *options, "--", "--cfg", "by_hand", sources={"k.rs": source}) == 0
    found = reader(tmp_path / "k.rgo")
    assert '"target-cpu"="sm_90"' in text_of(found.optimized())
    assert {"--cfg=fast", "--edition=2024", "-Ctarget-cpu=sm_90", "by_hand"} <= set(found.producer().flags)


@pytest.mark.parametrize(
    ("file", "head", "options", "name"),
    [
        ("my-kernels.rs", "", (), "my_kernels"),
        ("k.rs", '#![crate_name = "inside"]\n', (), "inside"),
        ("k.rs", "", ("--crate-name", "given"), "given"),
    ],
)
def test_crate_names(rgcc: Rgcc, tmp_path: Path, file: str, head: str, options: tuple[str, ...], name: str) -> None:
    source = f"{head}#![no_std]\npub fn f() {{}}\n"
    assert rgcc("-c", file, "-o", "k.rgo", *options, sources={file: source}) == 0
    found = reader(tmp_path / "k.rgo")
    assert found.producer().crate_name == name
    assert found.metadata()[0].file_name.startswith(f"lib{name}-")


def test_crates_of_one_name_and_path_need_metadata(
    rgcc: Rgcc, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    compile_util = ("-c", "lib.rs", "--crate-name", "util", "-o")
    use = ("-c", "use.rs", "-o", "use.rgo", "--extern", "x=a.rgo", "--extern", "y=b.rgo")
    assert rgcc(*compile_util, "../a.rgo", folder="a", sources={"lib.rs": "#![no_std]\npub fn f() -> u32 { 1 }\n"}) == 0
    assert rgcc(*compile_util, "../b.rgo", folder="b", sources={"lib.rs": "#![no_std]\npub fn f() -> u32 { 2 }\n"}) == 0
    sources = {"use.rs": "#![no_std]\npub fn f() -> u32 { x::f() + y::f() }\n"}
    assert rgcc(*use, sources=sources) == 1
    said = capfd.readouterr().err
    assert "colliding StableCrateId" in said
    one, two = (reader(tmp_path / name).metadata()[0].hash[:8] for name in ("a.rgo", "b.rgo"))
    places = sorted([f"util {one} in a.rgo", f"util {two} in b.rgo"])
    assert said.endswith(
        "rgcc: error: two crates named util have one identity [same-crate-id]\n"
        f">>> {places[0]}\n>>> {places[1]}\n"
        ">>> help: where they are two crates, compile one with another --metadata;"
        " where one is an older build, compile again what uses it\n"
    )
    assert rgcc(*compile_util, "../b.rgo", "--metadata", "second", folder="b") == 0
    assert rgcc(*use) == 0
    assert [entry.crate for entry in reader(tmp_path / "use.rgo").metadata()] == ["use", "util", "util"]


def test_a_package_version_tells_crates_apart(rgcc: Rgcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for version in ("1.0.0", "2.0.0"):
        # The fixture took the variable away for runs that do not ask for it.
        monkeypatch.setenv("CARGO_PKG_VERSION", version)
        assert rgcc("-c", "k.rs", "-o", "k.rgo", sources={"k.rs": "#![no_std]\npub fn f() {}\n"}) == 0
        names.append({symbol.name for symbol in reader(tmp_path / "k.rgo").summary().symbols})
    assert names[0].isdisjoint(names[1])


def changed(path: Path, **changes: object) -> None:
    """Write the file again with another producer."""
    rgo: Rgo = reader(path).load()
    path.write_bytes(write_rgo(replace(rgo, producer=replace(rgo.producer, **changes))))  # type: ignore[arg-type]


def test_refuses_a_crate_of_another_rustc(
    rgcc: Rgcc, tmp_path: Path, capfd: pytest.CaptureFixture[str], rustc: Rustc
) -> None:
    assert rgcc("-c", "base.rs", "-o", "base.rgo", sources={"base.rs": BASE}) == 0
    changed(tmp_path / "base.rgo", rustc="1.90.0 (1159e78c4 2025-09-14)")
    sources = {"mid.rs": MID}
    assert rgcc("-c", "mid.rs", "-o", "mid.rgo", "--extern", "base=base.rgo", sources=sources) == 1
    ours = rustc.verbose.splitlines()[0].removeprefix("rustc ")
    assert capfd.readouterr().err == (
        f"rgcc: error: base.rgo: compiled by rustc 1.90.0 (1159e78c4 2025-09-14), this is rustc {ours} [other-rustc]\n"
        ">>> help: compile base again with this rgcc\n"
    )
    assert not (tmp_path / "mid.rgo").exists()


def test_refuses_a_crate_compiled_against_another_core(
    rgcc: Rgcc, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert rgcc("-c", "base.rs", "-o", "base.rgo", sources={"base.rs": BASE}) == 0
    changed(tmp_path / "base.rgo", rglink="0.0.1", flags=("--sysroot=0",))
    sources = {"mid.rs": MID}
    assert rgcc("-c", "mid.rs", "-o", "mid.rgo", "--extern", "base=base.rgo", sources=sources) == 1
    assert "base.rgo: compiled by rglink 0.0.1 against another core" in capfd.readouterr().err


def test_refuses_a_damaged_or_missing_extern(rgcc: Rgcc, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert rgcc("-c", "base.rs", "-o", "base.rgo", sources={"base.rs": BASE, "mid.rs": MID}) == 0
    whole = (tmp_path / "base.rgo").read_bytes()
    (tmp_path / "base.rgo").write_bytes(whole[:-1])
    assert rgcc("-c", "mid.rs", "-o", "mid.rgo", "--extern", "base=base.rgo") == 1
    assert "base.rgo: is truncated" in capfd.readouterr().err
    assert rgcc("-c", "mid.rs", "-o", "mid.rgo", "--extern", "base=base.rs") == 1
    assert "base.rs: is not an .rgo" in capfd.readouterr().err
    assert rgcc("-c", "mid.rs", "-o", "mid.rgo", "--extern", "base=gone.rgo") == 1
    assert "gone.rgo: cannot be read for --extern base: No such file or directory" in capfd.readouterr().err


def test_a_broken_rustc_is_a_tool_error(
    rgcc: Rgcc, rustc: Rustc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "rustc"
    # It dies where it would compile for the device, as rustc does on an internal error.
    script.write_text(f'#!/bin/sh\ncase "$*" in *--emit*) exit 101;; esac\nexec {rustc.path} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("RGLINK_RUSTC", str(script))
    assert rgcc("-c", "k.rs", "-o", "k.rgo", sources={"k.rs": KERNEL}) == 3
    assert f"rustc {rustc.version} broke down (exit code 101) on k.rs [rustc-failed]" in capfd.readouterr().err


def test_leaves_no_temporary_files(rgcc: Rgcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "tmp"
    empty.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(empty))
    assert rgcc("-c", "base.rs", "-o", "base.rgo", sources={"base.rs": BASE}) == 0
    assert rgcc("-c", "mid.rs", "-o", "mid.rgo", "--extern", "base=base.rgo", sources={"mid.rs": WRONG}) == 1
    assert os.listdir(empty) == []
