"""The device sysroot is built once, by whoever comes first, and never taken damaged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rglink.diagnostics import ToolError
from rglink.frontend.rustc import Rustc
from rglink.frontend.sysroot import Sysroot, cached_sysroot, device_sysroot, library_prefix, sysroot_key

pytestmark = pytest.mark.rust

PROGRAM = """\
from rglink.frontend.rustc import find_rustc
from rglink.frontend.sysroot import device_sysroot
print(device_sysroot(find_rustc(22), "test").directory)
"""


def contents(sysroot: Sysroot) -> list[bytes]:
    return [path.read_bytes() for path in sysroot.rlibs]


@pytest.fixture
def copy(sysroot: Sysroot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sysroot in a cache of this test's own, times and all."""
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    shutil.copytree(sysroot.directory, cache / "sysroot" / sysroot.key)
    monkeypatch.setenv("RGLINK_CACHE_DIR", str(cache))
    return cache / "sysroot" / sysroot.key


def test_an_intact_one_is_taken_without_a_word(copy: Path, rustc: Rustc, capsys: pytest.CaptureFixture[str]) -> None:
    found = device_sysroot(rustc)
    assert found.directory == copy
    # Other times alone are looked into, and are no damage.
    os.utime(found.core)
    assert device_sysroot(rustc) == found
    assert cached_sysroot(found.key) == found
    assert cached_sysroot("0" * 32) is None
    assert cached_sysroot("../sysroot") is None
    assert capsys.readouterr().err == ""


def test_folders_are_not_in_it(sysroot: Sysroot, rustc: Rustc) -> None:
    for data in contents(sysroot):
        assert f"{library_prefix(rustc)}/".encode() in data
        for folder in {str(rustc.library), str(rustc.library.resolve()), str(sysroot.directory)}:
            assert folder.encode() not in data


@pytest.mark.slow
def test_two_at_once_build_once_and_the_same_bytes_anywhere(sysroot: Sysroot, tmp_path: Path) -> None:
    env = os.environ | {"RGLINK_CACHE_DIR": str(tmp_path / "elsewhere")}
    command = [sys.executable, "-c", PROGRAM]
    pipe = subprocess.PIPE
    running = [subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    said = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert said[0][0] == said[1][0]
    spoken = "".join(err for _, err in said)
    assert spoken.count("test: building core, compiler_builtins and alloc for nvptx64-nvidia-cuda") == 1
    assert spoken.count("test: built in ") == 1
    folder = tmp_path / "elsewhere/sysroot"
    assert sorted(os.listdir(folder)) == [sysroot.key, f"{sysroot.key}.lock"]
    built = [folder / sysroot.key / path.relative_to(sysroot.directory) for path in sysroot.rlibs]
    assert [path.read_bytes() for path in built] == contents(sysroot)


@pytest.mark.slow
def test_a_damaged_one_is_built_again(
    copy: Path, sysroot: Sysroot, rustc: Rustc, capsys: pytest.CaptureFixture[str]
) -> None:
    alloc = copy / sysroot.alloc.relative_to(sysroot.directory)
    data = bytearray(alloc.read_bytes())
    data[len(data) // 2] ^= 1
    alloc.write_bytes(data)
    found = device_sysroot(rustc)
    assert "rglink: building core" in capsys.readouterr().err
    assert contents(found) == contents(sysroot)


def test_a_library_that_does_not_compile_says_so(rustc: Rustc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RGLINK_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "library/core/src").mkdir(parents=True)
    (tmp_path / "library/core/src/lib.rs").write_text("#![no_core]\n#![feature(no_core)]\nfn f() {{\n")
    broken = Rustc(
        rustc.path, rustc.version, rustc.llvm_version, rustc.verbose, rustc.host, rustc.sysroot, tmp_path / "library"
    )
    with pytest.raises(ToolError) as caught:
        device_sysroot(broken)
    said = caught.value.diagnostic
    assert said.message == f"rustc {rustc.version} cannot compile its own core for nvptx64-nvidia-cuda"
    assert any("this file contains an unclosed delimiter" in place for place in said.places)
    assert f"in {tmp_path}/library: {rustc.path} --crate-name=core" in said.places[-1]
    assert os.listdir(tmp_path / "cache/sysroot") == [f"{sysroot_key(rustc)}.lock"]
