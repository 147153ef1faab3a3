"""The set-up scripts: which Rust they take, and that they stop where they may not install one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rglink.frontend.rustc import find_rustc

ROOT = Path(__file__).parents[1]


def shell(script: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `script` by sh, as the set-up does, after scripts/toolchain.sh."""
    command = ["sh", "-euc", f". scripts/toolchain.sh\n{script}"]
    return subprocess.run(command, cwd=ROOT, env=os.environ | env, capture_output=True, text=True, check=False)


@pytest.mark.rust
def test_takes_the_rustc_that_rgcc_takes() -> None:
    assert shell("find_rustc").stdout.strip() == str(find_rustc(22).path)


@pytest.mark.rust
def test_versions_are_read_from_rustc() -> None:
    rustc = find_rustc(22)
    printed = shell('rust_version "$RGLINK_RUSTC"; llvm_version "$RGLINK_RUSTC"', RGLINK_RUSTC=str(rustc.path))
    assert printed.stdout.split() == [rustc.version.split("-")[0], str(rustc.llvm_major)]


def test_a_named_rustc_that_will_not_do_is_no_reason_to_take_another() -> None:
    assert shell("find_rustc || echo none", RGLINK_RUSTC="/bin/true").stdout == "none\n"


@pytest.mark.parametrize(
    ("version", "wanted", "holds"),
    [("1.96.0", "1.96", True), ("1.100.0", "1.96", True), ("1.95.9", "1.96", False), ("", "1.96", False)],
)
def test_versions_compare_by_number(version: str, wanted: str, holds: bool) -> None:
    assert (shell(f"at_least '{version}' '{wanted}'").returncode == 0) is holds


def test_set_up_stops_and_says_what_would_help() -> None:
    """With a compiler that has no library sources named, nothing is installed and nothing else is taken."""
    done = subprocess.run(
        ["sh", "scripts/setup.sh"],
        cwd=ROOT,
        env=os.environ | {"RGLINK_RUSTC": "/bin/true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "setup: found /bin/true" in done.stderr
    assert "replaces no toolchain" in done.stderr
    assert "installing" not in done.stderr
