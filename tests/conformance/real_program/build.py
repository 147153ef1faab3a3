"""Builds the crate with cargo, its dependencies taken from where a distribution unpacks crates' sources."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from rglink.frontend.rustc import Rustc
from rglink.frontend.sysroot import Sysroot
from tests.tools import SCRIPTS

CRATE = Path(__file__).with_name("crate")
REGISTRY = Path("/usr/share/cargo/registry")
TARGET = "nvptx64-nvidia-cuda"
KERNELS = tuple(re.findall(r"^kernel!\((\w+),", (CRATE / "src/lib.rs").read_text(), re.MULTILINE))


def missing_crates() -> list[str]:
    """Dependencies whose sources are not there, as the packages that bring them."""
    names = re.findall(r"^([\w-]+) = \{ version", (CRATE / "Cargo.toml").read_text(), re.MULTILINE)
    present = {re.sub(r"-\d[^-]*$", "", path.name) for path in REGISTRY.glob("*-*")}
    return [f"librust-{name.replace('_', '-')}-dev" for name in names if name not in present]


def build_host(rustc: Rustc, folder: Path) -> Path:
    """The crate as a shared library for this machine."""
    _cargo(rustc, folder, {}, "--crate-type", "cdylib")
    return folder / "target/release/libreal_program.so"


def build_device(rustc: Rustc, sysroot: Sysroot, folder: Path) -> list[Path]:
    """The crate and all that it depends on as rlibs for the device, as rustc makes them under rglink's wrapper."""
    flags = {
        "RUSTC_WRAPPER": str(SCRIPTS / "rglink-rustc"),
        "CARGO_TARGET_NVPTX64_NVIDIA_CUDA_RUSTFLAGS": f"--sysroot={sysroot.directory} -Ctarget-cpu=sm_75",
    }
    _cargo(rustc, folder, flags, "--crate-type", "rlib", "--target", TARGET)
    return sorted((folder / "target" / TARGET / "release/deps").glob("*.rlib"))


def _cargo(rustc: Rustc, folder: Path, more: Mapping[str, str], *arguments: str) -> None:
    workspace = folder / "crate"
    if not workspace.exists():
        shutil.copytree(CRATE, workspace)
    beside = rustc.path.with_name("cargo")
    program = beside if beside.exists() else Path(shutil.which("cargo") or "cargo")
    source: list[str | Path] = ["--config", 'source.crates-io.replace-with="unpacked"']
    source += ["--config", f'source.unpacked.directory="{REGISTRY}"']
    command: list[str | Path] = [
        program,
        "rustc",
        "--release",
        "--lib",
        "--offline",
        *source,
        "--target-dir",
        folder / "target",
    ]
    environment = {**os.environ, "RUSTC": str(rustc.path), "RUSTC_BOOTSTRAP": "1", "RUSTC_WRAPPER": "", **more}
    done = subprocess.run(
        [*command, *arguments], cwd=workspace, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
