"""What a link writes: kinds by ending, several at once, temporaries, reports; from real crates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tools import require_rustc, run

LIBRARY = """
#![no_std]
#[inline(never)]
pub fn scale(x: f32) -> f32 {
    x * 1.5 + 0.25
}
"""
KERNELS = """
#![no_std]
#![feature(abi_ptx, stdarch_nvptx)]
use core::arch::nvptx::{_syncthreads, _thread_idx_x};
use core::{cell::UnsafeCell, mem::MaybeUninit};
pub struct Shared<T>(UnsafeCell<MaybeUninit<T>>);
unsafe impl<T> Sync for Shared<T> {}
#[unsafe(link_section = ".rglink.shared")]
static TILE: Shared<[f32; 64]> = Shared(UnsafeCell::new(MaybeUninit::uninit()));
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn turn(xs: *const f32, out: *mut f32) {
    unsafe {
        let i = _thread_idx_x() as usize;
        let tile = TILE.0.get().cast::<f32>();
        *tile.add(i) = library::scale(*xs.add(i));
        _syncthreads();
        *out.add(i) = *tile.add(63 - i);
    }
}
"""


@pytest.fixture(scope="module")
def crates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `library.rgo` and `kernels.rgo`, compiled with line tables."""
    require_rustc()
    folder = tmp_path_factory.mktemp("crates")
    (folder / "library.rs").write_text(LIBRARY)
    (folder / "kernels.rs").write_text(KERNELS)
    for name, extra in (("library", []), ("kernels", ["--extern", "library=library.rgo"])):
        done = run(["rgcc", "-c", f"{name}.rs", "-o", f"{name}.rgo", "--edition", "2024", "--lineinfo", *extra], folder)
        assert done.returncode == 0, done.stderr
    return folder


def link(crates: Path, out: Path, *words: str) -> str:
    """Link both crates into files of `out`; stdout."""
    done = run(["rglink", str(crates / "library.rgo"), str(crates / "kernels.rgo"), *words], out)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.rust
def test_each_kind_by_its_ending(crates: Path, tmp_path: Path) -> None:
    for name in ("a.fatbin", "a.cubin", "a.ptx", "a.ltoir", "a.bc", "a.ll"):
        link(crates, tmp_path, "-o", name, "--arch", "sm_90")
    starts = {path.suffix: path.read_bytes()[:16] for path in tmp_path.iterdir()}
    assert starts[".fatbin"].startswith(b"\x50\xed\x55\xba")
    assert starts[".cubin"].startswith(b"\x7fELF")
    assert starts[".ptx"].startswith(b"//\n// Generated")
    assert starts[".ltoir"].startswith(b"\xed\x43\x4e\x7f")
    assert starts[".bc"].startswith(b"BC\xc0\xde")
    assert starts[".ll"].startswith(b"; ModuleID")


@pytest.mark.rust
def test_several_kinds_in_one_link(crates: Path, tmp_path: Path) -> None:
    link(crates, tmp_path, "-o", "app.fatbin", "--emit", "fatbin,ptx,ll", "--arch", "sm_80,sm_90,compute_80")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["app.fatbin", "app.ll", "app.ptx"]
    assert ".target sm_80" in (tmp_path / "app.ptx").read_text()


@pytest.mark.rust
def test_a_linked_program_links_again(crates: Path, tmp_path: Path) -> None:
    link(crates, tmp_path, "-o", "whole.bc")
    done = run(["rglink", "whole.bc", "-o", "again.ptx"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    ptx = (tmp_path / "again.ptx").read_text()
    assert ".visible .entry turn(" in ptx
    assert "st.shared" in ptx
    assert ptx.count("bar.sync") == 1


@pytest.mark.rust
@pytest.mark.parametrize("route", ["llvm", "nvvm"])
def test_line_tables_reach_the_cubin_and_full_debug_info_links(crates: Path, tmp_path: Path, route: str) -> None:
    for arch in ("sm_75", "sm_90", "sm_120"):
        link(crates, tmp_path, "-o", "a.cubin", "--arch", arch, f"--codegen={route}", "--remap-path-prefix", ".=SRC")
        listing = run(["nvdisasm", "-g", "a.cubin"], tmp_path).stdout
        assert 'SRC/kernels.rs", line 17' in listing
        assert 'SRC/library.rs", line 5' in listing


@pytest.mark.rust
def test_temporaries_and_stopping(crates: Path, tmp_path: Path) -> None:
    link(crates, tmp_path, "-o", "a.fatbin", "--save-temps=gc,opt")
    assert sorted(path.name for path in tmp_path.glob("*.ll")) == ["a.fatbin.2.gc.ll", "a.fatbin.4.opt.ll"]
    assert "convergent" in (tmp_path / "a.fatbin.4.opt.ll").read_text()
    said = link(crates, tmp_path, "-o", "b.fatbin", "--stop-after", "abi")
    assert said == "stopped after abi\n"
    assert [path.name for path in tmp_path.glob("b.*")] == ["b.fatbin.3.abi.ll"]


@pytest.mark.rust
def test_reports(crates: Path, tmp_path: Path) -> None:
    words = ("-o", "a.fatbin", "--arch", "sm_80,sm_90")
    rows = json.loads(link(crates, tmp_path, *words, "--print-resources=json"))
    assert [(row["kernel"], row["arch"], row["shared"]) for row in rows] == [
        ("turn", "sm_80", 256),
        ("turn", "sm_90", 256),
    ]
    assert link(crates, tmp_path, *words, "--print-barriers") == (
        "turn: barrier 1 (kernels.rs:16): aligned: all threads of the block arrive together\n"
    )
    assert link(crates, tmp_path, *words, "--why-live", "library::scale").splitlines()[1].endswith("(kernel)")
    times = link(crates, tmp_path, *words, "--time-phases", "--time-trace", "trace.json", "--print-map", "a.map")
    assert [line.split()[0] for line in times.splitlines()] == [
        "phase", "load", "resolve", "merge", "gc", "abi", "opt", "final", "codegen", "prove", "pack", "total",
    ]  # fmt: skip
    assert {event["name"] for event in json.loads((tmp_path / "trace.json").read_text())} > {"load", "codegen"}
    kernel_map = (tmp_path / "a.map").read_text()
    assert "function  library::scale  " in kernel_map
    assert "kernel    turn  " in kernel_map
    assert str(crates) not in kernel_map.replace(str(crates / "library.rgo"), "").replace(
        str(crates / "kernels.rgo"), ""
    )


@pytest.mark.rust
@pytest.mark.slow
def test_the_sysroot_is_built_with_a_word_when_the_link_is_the_first_to_need_it(crates: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    words = ["rglink", str(crates / "library.rgo"), str(crates / "kernels.rgo"), "-o", "a.fatbin"]
    done = run(words, tmp_path, {"RGLINK_CACHE_DIR": str(tmp_path / "cache")})
    assert done.returncode == 0
    assert done.stderr.startswith("rglink: building core, compiler_builtins and alloc for nvptx64-nvidia-cuda")
