"""The conformance crate: every operation as a kernel for the device and as a loop for the host, one source for both."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rglink.frontend.rustc import Rustc
from tests.conformance.table import Operation
from tests.tools import run

FEATURES = (
    "f16 core_float_math float_minimum_maximum uint_bit_width isolate_most_least_significant_one "
    "int_lowest_highest_one funnel_shifts uint_carryless_mul uint_gather_scatter_bits exact_bitshifts "
    "wrapping_next_power_of_two const_unsigned_bigint_helpers signed_bigint_helpers widening_mul "
    "int_roundings exact_div"
)

HEAD = """
#![feature(FEATURES)]
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx, stdarch_nvptx))]
#![allow(unused_features, stable_features, unused_macros, arithmetic_overflow)]

macro_rules! some {
    ($t:ty, $e:expr) => { match $e { Some(v) => [v, 1 as $t], None => [0 as $t, 0 as $t] } };
}

macro_rules! pair {
    ($t:ty, $e:expr) => {{ let (v, flag) = $e; [v, flag as $t] }};
}

#[cfg(target_arch = "nvptx64")]
macro_rules! op {
    ($name:ident, $r:ty, $e:expr, $($x:ident: $t:ty),*) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $name($($x: *const $t,)* out: *mut $r, n: usize) {
            use core::arch::nvptx::*;
            unsafe {
                let at = (_block_idx_x() * _block_dim_x() + _thread_idx_x()) as usize;
                if at < n {
                    $(let $x = *$x.add(at);)*
                    *out.add(at) = $e;
                }
            }
        }
    };
}

#[cfg(not(target_arch = "nvptx64"))]
macro_rules! op {
    ($name:ident, $r:ty, $e:expr, $($x:ident: $t:ty),*) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($x: *const $t,)* out: *mut $r, n: usize) {
            for at in 0..n {
                unsafe {
                    $(let $x = *$x.add(at);)*
                    *out.add(at) = $e;
                }
            }
        }
    };
}
""".replace("FEATURES", ", ".join(FEATURES.split()))
# Overflow wraps, as in a release build, at every level.
CODE_FLAGS = ("-Coverflow-checks=off", "-Cdebug-assertions=off", "-Awarnings")


@dataclass(frozen=True)
class Configuration:
    """How the device side is built: `level` is for compiler and link, `route` "llvm" or "nvvm", `arch` "sm_75"."""

    level: int
    route: str
    arch: str

    def __str__(self) -> str:
        return f"{self.route}-O{self.level}-{self.arch}"


CONFIGURATIONS = tuple(
    Configuration(level, route, arch)
    for arch in ("sm_75", "sm_100")
    for route, levels in (("llvm", (0, 2, 3)), ("nvvm", (3,)))
    for level in levels
)


def crate_source(operations: Iterable[Operation]) -> str:
    """The Rust source that has each operation under its name."""
    lines = [HEAD]
    for operation in operations:
        types = ("u32" if spec[0] == "n" else spec for spec in operation.arguments)
        arguments = ", ".join(f"{name}: {spec}" for name, spec in zip("abc", types, strict=False))
        lines.append(f"op!({operation.name}, {operation.result}, {operation.rust}, {arguments});")
    return "\n".join(lines) + "\n"


def checked(argv: Sequence[str], folder: Path) -> None:
    """Run one of our commands; a failure shows what it said."""
    done = run(argv, folder)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.returncode}\n{done.stdout}\n{done.stderr}"


def build_host(rustc: Rustc, source: Path, output: Path) -> None:
    """The crate as a shared library for this machine, by the compiler that the device side uses."""
    command = [
        str(rustc.path), "--edition=2024", "--crate-type=cdylib", "-Copt-level=1", *CODE_FLAGS,
        "-o", str(output), str(source),
    ]  # fmt: skip
    environment = {**os.environ, "RUSTC_BOOTSTRAP": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def build_device(source: Path, level: int) -> Path:
    """The crate's `.rgo`, beside its source."""
    output = source.with_suffix(f".O{level}.rgo")
    if not output.exists():
        flags = ("--edition", "2024", "-O", str(level), "--", *CODE_FLAGS)
        checked(("rgcc", "-c", source.name, "-o", output.name, *flags), source.parent)
    return output


def link_device(crate: Path, configuration: Configuration, *more: str) -> Path:
    """The linked PTX of a crate for one configuration."""
    output = crate.with_name(f"{crate.stem}.{configuration}.ptx")
    route = (f"-O{configuration.level}", f"--codegen={configuration.route}", "--arch", configuration.arch)
    checked(("rglink", crate.name, *more, "-o", output.name, *route), crate.parent)
    return output
