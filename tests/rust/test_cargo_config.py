"""`rglink cargo-config`: what it prints, and what it does to a configuration that is there."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from rglink.frontend.cargo_config import main

FRESH = """\
[target.nvptx64-nvidia-cuda]
linker = "rglink"

[build]
rustc-wrapper = "rglink-rustc"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cargo project whose CARGO_HOME has no configuration."""
    for name in ("RUSTC_WRAPPER", "CARGO_BUILD_RUSTC_WRAPPER", "CARGO_TARGET_NVPTX64_NVIDIA_CUDA_LINKER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "cargo-home"))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Cargo.toml").write_text('[package]\nname = "p"\nversion = "0.1.0"\n')
    return folder


def config_of(project: Path, text: str, name: str = "config.toml") -> Path:
    file = project / ".cargo" / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text.encode())
    return file


def write(project: Path) -> int:
    return main(["--write", "--manifest-dir", str(project)])


def test_prints_two_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out == FRESH


def test_writes_a_new_file_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = project / ".cargo/config.toml"
    assert write(project) == 0
    assert file.read_text() == FRESH
    first = file.stat().st_mtime_ns
    assert write(project) == 0
    assert (file.read_text(), file.stat().st_mtime_ns) == (FRESH, first)
    assert capsys.readouterr().out == f"{file}: written\n{file}: up to date\n"


# What is there, and what it becomes.
MERGES = {
    "other tables": (
        "# ours\n[build] # here\ntarget = 'nvptx64-nvidia-cuda'   # device\n\n[unstable]\nbuild-std = [\"core\"]\n",
        "# ours\n[build] # here\nrustc-wrapper = \"rglink-rustc\"\ntarget = 'nvptx64-nvidia-cuda'   # device\n\n"
        '[unstable]\nbuild-std = ["core"]\n\n[target.nvptx64-nvidia-cuda]\nlinker = "rglink"\n',
    ),
    "target table": (
        '[ target . "nvptx64-nvidia-cuda" ]\nrustflags = ["-Ctarget-cpu=sm_80"]\n',
        '[ target . "nvptx64-nvidia-cuda" ]\nlinker = "rglink"\nrustflags = ["-Ctarget-cpu=sm_80"]\n\n'
        '[build]\nrustc-wrapper = "rglink-rustc"\n',
    ),
    "no newline at the end": (
        "[build]",
        '[build]\nrustc-wrapper = "rglink-rustc"\n\n[target.nvptx64-nvidia-cuda]\nlinker = "rglink"\n',
    ),
    "windows line ends": (
        "[net]\r\noffline = true\r\n",
        '[net]\r\noffline = true\r\n\r\n[target.nvptx64-nvidia-cuda]\r\nlinker = "rglink"\r\n\r\n'
        '[build]\r\nrustc-wrapper = "rglink-rustc"\r\n',
    ),
    "a header within a string": (
        '[env]\nX = """\n[build]\n"""\n',
        '[env]\nX = """\n[build]\n"""\n\n[target.nvptx64-nvidia-cuda]\nlinker = "rglink"\n\n'
        '[build]\nrustc-wrapper = "rglink-rustc"\n',
    ),
    "dotted keys": (
        "build.jobs = 2\n",
        'build.rustc-wrapper = "rglink-rustc"\nbuild.jobs = 2\n\n[target.nvptx64-nvidia-cuda]\nlinker = "rglink"\n',
    ),
    "an older wrapper": (
        "[build]\nrustc-wrapper = 'sccache' # fast\n",
        '[build]\nrustc-wrapper = "rglink-rustc" # fast\n\n[target.nvptx64-nvidia-cuda]\nlinker = "rglink"\n\n'
        '[env]\nRGLINK_RUSTC_WRAPPER = "sccache"\n',
    ),
    "an older wrapper by a path": (
        '[build]\nrustc-wrapper = "tools/wrap"\n[env]\nA = "1"\n',
        '[build]\nrustc-wrapper = "rglink-rustc"\n[env]\n'
        'RGLINK_RUSTC_WRAPPER = { value = "tools/wrap", relative = true }\nA = "1"\n\n'
        '[target.nvptx64-nvidia-cuda]\nlinker = "rglink"\n',
    ),
    "our programs by a path": (
        '[build]\nrustc-wrapper = "/opt/bin/rglink-rustc"\n[target.nvptx64-nvidia-cuda]\nlinker = "/opt/bin/rglink"\n',
        '[build]\nrustc-wrapper = "/opt/bin/rglink-rustc"\n[target.nvptx64-nvidia-cuda]\nlinker = "/opt/bin/rglink"\n',
    ),
}


@pytest.mark.parametrize("case", MERGES)
def test_keeps_what_is_there(project: Path, case: str) -> None:
    before, after = MERGES[case]
    file = config_of(project, before)
    assert write(project) == 0
    assert file.read_bytes().decode() == after
    assert write(project) == 0
    assert file.read_bytes().decode() == after


def test_older_wrapper_of_a_parent_folder_is_kept(project: Path) -> None:
    config_of(project.parent, '[build]\nrustc-wrapper = "tools/wrap"\n')
    assert write(project) == 0
    written = tomllib.loads((project / ".cargo/config.toml").read_text())
    assert written["env"] == {"RGLINK_RUSTC_WRAPPER": str(project.parent / "tools/wrap")}


def test_wrapper_of_ours_in_a_parent_folder_is_not_chained(project: Path) -> None:
    config_of(project.parent, '[build]\nrustc-wrapper = "rglink-rustc"\n')
    assert write(project) == 0
    assert (project / ".cargo/config.toml").read_text() == FRESH


def test_a_config_without_ending_is_the_one_that_cargo_reads(project: Path) -> None:
    config_of(project, "")
    old = config_of(project, "[net]\nretry = 1\n", "config")
    assert write(project) == 0
    assert "rglink-rustc" in old.read_text()
    assert (project / ".cargo/config.toml").read_text() == ""


def test_a_link_stays_a_link(project: Path) -> None:
    real = project / "shared.toml"
    real.write_text("")
    real.chmod(0o640)
    (project / ".cargo").mkdir()
    (project / ".cargo/config.toml").symlink_to(real)
    assert write(project) == 0
    assert (project / ".cargo/config.toml").is_symlink()
    assert real.read_text() == FRESH
    assert os.stat(real).st_mode & 0o777 == 0o640


REFUSED = {
    "linker": (
        '[target.nvptx64-nvidia-cuda]\nlinker = "llvm-bitcode-linker"\n',
        'target.nvptx64-nvidia-cuda.linker is "llvm-bitcode-linker" already, wanted "rglink"',
    ),
    "flags": (
        '[target.nvptx64-nvidia-cuda]\nrustflags = ["-C", "linker=lld"]\n',
        "target.nvptx64-nvidia-cuda.rustflags holds linker=lld, which overrides target.nvptx64-nvidia-cuda.linker",
    ),
    "chain": (
        '[build]\nrustc-wrapper = "sccache"\n[env]\nRGLINK_RUSTC_WRAPPER = "ccache"\n',
        'env.RGLINK_RUSTC_WRAPPER is "ccache" already, wanted "sccache"',
    ),
    "inline table": ("build = { jobs = 2 }\n", "cannot add build.rustc-wrapper to the text that is there"),
    "no TOML": ("[build\n", "no TOML: "),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_what_conflicts(project: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    text, message = REFUSED[case]
    file = config_of(project, text)
    assert write(project) == 1
    assert capsys.readouterr().err.startswith(f"rglink: error: {file}: {message}")
    assert file.read_text() == text
    assert os.listdir(file.parent) == ["config.toml"]


def test_refuses_a_folder_without_a_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--write", "--manifest-dir", str(tmp_path)]) == 1
    assert "no Cargo.toml in this folder" in capsys.readouterr().err
    assert not (tmp_path / ".cargo").exists()


def test_unknown_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--wrote"]) == 2
    assert capsys.readouterr().err == "rglink: error: cargo-config: unrecognized arguments: --wrote [usage]\n"


def test_says_when_the_environment_overrides_the_file(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RUSTC_WRAPPER", "sccache")
    assert write(project) == 0
    assert "RUSTC_WRAPPER is set and overrides what is written" in capsys.readouterr().err
