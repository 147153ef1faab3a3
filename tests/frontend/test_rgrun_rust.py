"""Real crates, linked and run: a race between two crates with both lines, a reduction's profile, slices and panics."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rglink.emulate import CheckFailed, load
from tests.tools import require_rustc, run

pytestmark = pytest.mark.rust

BOARD = """\
#![no_std]
#![feature(abi_ptx, stdarch_nvptx)]
use core::{cell::UnsafeCell, mem::MaybeUninit, sync::atomic::{AtomicU32, Ordering}};
pub use core::arch::nvptx::{_syncthreads, _thread_idx_x};

#[repr(transparent)]
pub struct Board(UnsafeCell<MaybeUninit<[u32; 64]>>);
unsafe impl Sync for Board {}
impl Board {
    pub const fn new() -> Self { Self(UnsafeCell::new(MaybeUninit::uninit())) }
    pub fn at(&self, place: usize) -> *mut u32 { self.0.get().cast::<u32>().wrapping_add(place) }
}

pub unsafe fn post(board: &Board, place: usize, value: u32) {
    unsafe { *board.at(place) = value };
}

pub fn count(counter: &AtomicU32) -> u32 {
    counter.fetch_add(1, Ordering::Relaxed)
}
"""
APP = """\
#![no_std]
#![feature(abi_ptx, stdarch_nvptx)]
#![allow(improper_ctypes_definitions)]
use board::{_syncthreads, _thread_idx_x, Board, count, post};
use core::sync::atomic::{AtomicU32, Ordering};

#[unsafe(link_section = ".rglink.shared")]
static BOARD: Board = Board::new();

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn neighbour(out: *mut u32, wait: u32) {
    let me = unsafe { _thread_idx_x() } as usize;
    unsafe {
        post(&BOARD, me, me as u32 * 10);
        if wait != 0 {
            _syncthreads();
        }
        *out.add(me) = *BOARD.at(me ^ 32);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn double(source: &[u32], target: *mut u32) {
    let me = unsafe { _thread_idx_x() } as usize;
    unsafe { *target.add(me) = source[me] * 2 };
}

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn tally(cell: *mut u32, called: u32) {
    unsafe {
        if called != 0 {
            count(&*cell.cast::<AtomicU32>());
        } else {
            (*cell.cast::<AtomicU32>()).fetch_add(1, Ordering::Relaxed);
        }
        *cell = 7;
    }
}
"""


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sources, app.fatbin of the llvm route and app.ptx of the nvvm route, with `inlined_at`."""
    require_rustc()
    folder = tmp_path_factory.mktemp("rgrun")
    (folder / "board.rs").write_text(BOARD)
    (folder / "app.rs").write_text(APP)
    for command in (
        "rgcc -c board.rs -o board.rgo --edition 2024 --lineinfo",
        "rgcc -c app.rs -o app.rgo --edition 2024 --lineinfo --extern board=board.rgo",
        "rglink app.rgo board.rgo -o app.fatbin --arch sm_90,compute_90",
    ):
        done = run(command.split(), folder)
        assert done.returncode == 0, done.stderr
    done = run("rglink app.rgo board.rgo -o app.ptx --arch sm_90 --codegen=nvvm".split(), folder)
    assert done.returncode == 0, done.stderr
    return folder


def rgrun(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    return run(["rgrun", "app.fatbin", *command.split()], folder)


def test_a_race_between_two_crates_is_found_with_both_lines(linked: Path) -> None:
    command = "--kernel neighbour --block 64 --arg out:u32[64] --arg u32="
    fine = rgrun(linked, f"{command}1")
    assert (fine.returncode, fine.stderr) == (0, "")
    assert fine.stdout == "arg1: u32[64] =\n  [320 330 340 350 ... 280 290 300 310]\n"
    racy = rgrun(linked, f"{command}0")
    assert racy.returncode == 1
    lines = racy.stderr.splitlines()
    assert lines[0].startswith("rgrun: error: kernel neighbour: data race on shared ")
    assert lines[0].endswith("threads of the same block are not ordered [race]")
    quoted = {line for line in lines if " | " in line}
    assert quoted == {
        ">>>    15 | unsafe { *board.at(place) = value };",
        ">>>    18 | *out.add(me) = *BOARD.at(me ^ 32);",
    }
    assert {line.split()[1].rstrip(":") for line in lines if ".rs:" in line} == {"board.rs:15", "app.rs:18"}


@pytest.mark.parametrize(
    ("called", "place"),
    [
        (0, (("app.rs", 34), ())),
        (1, (("board.rs", 19), (("app.rs", 32),))),
    ],
)
def test_an_atomic_of_core_is_told_by_the_users_line(
    linked: Path, called: int, place: tuple[tuple[str, int], tuple[tuple[str, int], ...]]
) -> None:
    """Inlined out of core, through two of its functions: PTX of libNVVM holds the chain of calls."""
    program = load(linked / "app.ptx")
    with pytest.raises(CheckFailed) as caught:
        program["tally"][2, 32](np.zeros(1, np.uint32), called)
    (atomic,) = {
        ((place.file, place.line), place.inlined_at)
        for report in caught.value.reports
        for place in report.places
        if "atomic" in place.what
    }
    assert atomic == place


def test_without_the_chain_of_calls_the_line_before_is_told(linked: Path) -> None:
    """LLVM writes no `inlined_at`: the last own line is told as near, with the library's."""
    done = rgrun(linked, "--kernel tally --grid 2 --block 32 --arg u32[1] --arg u32=0")
    assert done.returncode == 1
    (place,) = {line for line in done.stderr.splitlines() if "atomic" in line and line.startswith(">>>")}
    assert re.match(r">>> near app\.rs:\d+: .*atomic.* \(PTX line \d+: .*, in core/src/sync/atomic\.rs:\d+\)$", place)


def test_a_race_is_found_in_every_order_of_threads(linked: Path) -> None:
    for seed in range(4):
        done = rgrun(linked, f"--kernel neighbour --block 64 --arg out:u32[64] --arg u32=0 --seed {seed} --json")
        found: dict[str, Any] = json.loads(done.stdout)
        assert (done.returncode, found["seed"], found["reports"][0]["kind"]) == (1, seed, "race")


def test_a_slice_is_checked_by_rust_itself(linked: Path) -> None:
    done = rgrun(linked, "--kernel double --block 4 --arg slice:u32[4]=arange:1 --arg out:u32[4]")
    assert (done.returncode, done.stdout, done.stderr) == (0, "arg2: u32[4] =\n  [2 4 6 8]\n", "")
    beyond = rgrun(linked, "--kernel double --block 5 --arg slice:u32[4] --arg out:u32[5]")
    assert beyond.returncode == 1
    assert "thread (4, 0, 0)" in beyond.stderr
    pointer = rgrun(linked, "--kernel double --block 4 --arg u32[4] --arg out:u32[4]")
    assert pointer.returncode == 2
    assert pointer.stderr.splitlines()[-1] == (">>> help: a Rust slice is pointer and length: --arg 'slice:u32[4]'")


def test_the_profile_names_the_lines_of_both_crates(linked: Path) -> None:
    done = rgrun(linked, "--kernel neighbour --block 64 --arg out:u32[64] --arg u32=1 --profile --json")
    lines = {(line["file"], line["line"]): line for line in json.loads(done.stdout)["profile"]["lines"]}
    post, read = lines["board.rs", 15], lines["app.rs", 18]
    # Two warps store a row each and read the other's: no conflicts; 128 bytes of results for each are 4 sectors.
    assert (post["shared_requests"], post["shared_wavefronts"]) == (2, 2)
    assert (read["shared_requests"], read["shared_wavefronts"]) == (2, 2)
    assert (read["global_requests"], read["global_sectors"]) == (2, 8)
