"""What the real rustc hands to a linker, for the tests of this folder."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import pytest

from rglink.diagnostics import ToolError
from rglink.frontend.rustc import Rustc, find_rustc
from rglink.frontend.sysroot import TARGET, Sysroot, device_sysroot
from rglink.ir import LLVM_MAJOR, Module

# What `rgcc` and the wrapper pass, so that rustc leaves barriers and shared memory as they are written.
PROTECTING = (
    "-Zmir-enable-passes=-JumpThreading",
    "-Cno-prepopulate-passes",
    "-Zcross-crate-inline-threshold=never",
    "-Ccodegen-units=1",
    "-Cno-redzone=yes",
)
PRELUDE = """
#![no_std]
#![feature(abi_ptx, stdarch_nvptx, asm_experimental_arch)]
#![allow(improper_ctypes_definitions, unused)]
use core::arch::{asm, nvptx::*};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::*;
#[repr(transparent)]
pub struct Shared<T>(UnsafeCell<MaybeUninit<T>>);
unsafe impl<T> Sync for Shared<T> {}
impl<T> Shared<T> {
    pub const fn uninit() -> Self { Self(UnsafeCell::new(MaybeUninit::uninit())) }
    pub const fn get(&self) -> *mut T { self.0.get().cast() }
}
"""


@lru_cache(maxsize=1)
def _toolchain() -> tuple[Rustc, Sysroot] | str:
    try:
        rustc = find_rustc(LLVM_MAJOR)
        return rustc, device_sysroot(rustc, "tests")
    except ToolError as error:
        return error.diagnostic.render()


def toolchain() -> tuple[Rustc, Sysroot]:
    """The rustc that rgcc would use and the device's core; skips the test where there is none."""
    found = _toolchain()
    if isinstance(found, str):
        pytest.skip(found)
    return found


def compile_crate(
    folder: Path,
    name: str,
    source: str,
    flags: Sequence[str] = (*PROTECTING, "-Copt-level=3"),
    externs: Sequence[str] = (),
) -> Module:
    """Compile `PRELUDE` + `source` as an rlib in `folder`; skips the test where there is no rustc for it."""
    rustc, sysroot = toolchain()
    (folder / f"{name}.rs").write_text(PRELUDE + source)
    command = [str(rustc.path), f"{name}.rs", f"--crate-name={name}", "--crate-type=lib", "--edition=2024"]
    command += [f"--target={TARGET}", "-Cpanic=abort", f"--sysroot={sysroot.directory}", "-L."]
    command += ["--emit=link,llvm-bc", *flags, *(f"--extern={each}" for each in externs)]
    done = subprocess.run(command, cwd=folder, env=rustc.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Module.parse_bitcode((folder / f"{name}.bc").read_bytes(), name)
