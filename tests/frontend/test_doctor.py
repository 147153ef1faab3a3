"""`rglink doctor` says what is there and what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools import require_rustc, run


@pytest.mark.rust
def test_all_that_a_link_needs_is_here(tmp_path: Path) -> None:
    rustc = require_rustc()
    done = run(["rglink", "doctor"], tmp_path)
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert f"ok       rustc {rustc.version}, LLVM {rustc.llvm_version} ({rustc.path}" in done.stdout
    for library in ("nvvm", "nvjitlink", "nvfatbin"):
        assert any(line.startswith(f"ok       nvidia-{library} ") for line in lines)
    assert any(line.startswith("ok       llvmlite ") and ", LLVM 22." in line for line in lines)


def test_without_a_rustc(tmp_path: Path) -> None:
    (tmp_path / "rustc").write_text("#!/bin/sh\nexit 1\n")
    done = run(["rglink", "doctor"], tmp_path, {"RGLINK_RUSTC": str(tmp_path / "rustc")})
    assert done.returncode == 3
    assert f"missing  RGLINK_RUSTC: {tmp_path}/rustc: " in done.stdout
    assert done.stderr == ""


def test_it_takes_no_arguments(tmp_path: Path) -> None:
    done = run(["rglink", "doctor", "--fix"], tmp_path)
    assert (done.returncode, done.stderr) == (2, "rglink: error: doctor: --fix: no argument is wanted [usage]\n")
