"""Which rustc is taken, and what is said of those that are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rglink.diagnostics import ToolError
from rglink.frontend.rustc import Rustc, candidates, find_rustc


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No rustc anywhere but in this folder: `.rustup` in it, and `bin` on PATH."""
    for name in ("RGLINK_RUSTC", "RUSTUP_TOOLCHAIN", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RUSTUP_HOME", str(tmp_path / ".rustup"))
    monkeypatch.setenv("RGLINK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    monkeypatch.setattr("rglink.frontend.rustc.SYSTEM_FOLDERS", ())
    return tmp_path


def toolchain(folder: Path, version: str = "1.96.0", llvm: str = "22.1.8", sources: str | None = "same") -> Path:
    """A rustc that answers questions, and library sources of a version beside it (`same`: not said)."""
    program = folder / "bin/rustc"
    program.parent.mkdir(parents=True, exist_ok=True)
    verbose = (
        f"rustc {version} (0123 2026-01-01)\\nbinary: rustc\\ncommit-hash: {'0' * 40}\\nhost: h\\nrelease: {version}"
    )
    program.write_text(
        f'#!/bin/sh\necho "$*" >> {folder}/asked\ncase "$1" in\n'
        f'-vV) printf "{verbose}\\nLLVM version: {llvm}\\n";;\n--print) echo {folder};;\nesac\n'
    )
    program.chmod(0o755)
    if sources is not None:
        rust = folder / "lib/rustlib/src/rust"
        for file in ("library/core/src/lib.rs", "library/compiler-builtins/compiler-builtins/src/lib.rs"):
            (rust / file).parent.mkdir(parents=True)
            (rust / file).write_text("")
        if sources != "same":
            (rust / "src").mkdir()
            (rust / "src/version").write_text(f"{sources}\n")
    return program


def said(error: ToolError) -> str:
    return error.diagnostic.render()


def test_rustup_nightly_comes_before_other_toolchains_and_path(home: Path) -> None:
    toolchain(home / ".rustup/toolchains/stable-x86_64-unknown-linux-gnu")
    wanted = toolchain(home / ".rustup/toolchains/nightly-x86_64-unknown-linux-gnu", "1.97.0-nightly")
    toolchain(home)
    found = find_rustc(22)
    assert (found.path, found.version, found.llvm_version, found.host) == (wanted, "1.97.0-nightly", "22.1.8", "h")
    assert "RUSTC_BOOTSTRAP" not in found.env


def test_stable_rustc_is_asked_for_unstable_flags(home: Path) -> None:
    toolchain(home)
    assert find_rustc(22).env["RUSTC_BOOTSTRAP"] == "1"


def test_order_of_toolchains(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["1.96.0-x", "nightly-2026-07-01-x", "nightly-2026-08-01-x", "nightly-x", "stable-x"]
    for name in names:
        toolchain(home / ".rustup/toolchains" / name)
    monkeypatch.setenv("RUSTUP_TOOLCHAIN", "1.96.0")
    order = [candidate.path.parent.parent.name for candidate in candidates(22)]
    assert order == ["1.96.0-x", "nightly-x", "nightly-2026-08-01-x", "nightly-2026-07-01-x", "stable-x"]


def test_named_rustc_is_the_only_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain(home)
    monkeypatch.setenv("RGLINK_RUSTC", str(toolchain(home / "mine", sources=None)))
    with pytest.raises(ToolError) as caught:
        find_rustc(22)
    assert said(caught.value) == (
        f"rglink: error: RGLINK_RUSTC: {home}/mine/bin/rustc: rustc 1.96.0 has no library sources"
        f" ({home}/mine/lib/rustlib/src/rust/library) [no-rustc]\n"
        ">>> help: rustup toolchain install nightly-2026-08-05 --component rust-src"
        " (or on Debian: apt install rustc-web rust-web-src)"
    )


def test_newer_llvm_is_refused_with_both_versions_and_the_last_that_fits(home: Path) -> None:
    name = "nightly-x86_64-unknown-linux-gnu"
    toolchain(home / ".rustup/toolchains" / name, "1.100.0-nightly", "23.1.1")
    with pytest.raises(ToolError) as caught:
        find_rustc(22)
    assert caught.value.exit_code == 3
    assert said(caught.value) == (
        "rglink: error: no usable rustc: wanted one with its library sources and LLVM up to 22 [no-rustc]\n"
        f">>> {home}/.rustup/toolchains/{name}/bin/rustc (rustup toolchain {name}): rustc 1.100.0-nightly has LLVM"
        " 23.1.1, rglink reads bitcode up to LLVM 22; the last rustc that fits is 1.98 or nightly-2026-08-05\n"
        ">>> help: rustup toolchain install nightly-2026-08-05 --component rust-src"
    )


def test_a_newer_nightly_is_passed_over_for_one_that_fits(home: Path) -> None:
    toolchain(home / ".rustup/toolchains/nightly-x", "1.100.0-nightly", "23.1.1")
    wanted = toolchain(home / ".rustup/toolchains/nightly-2026-08-05-x", "1.99.0-nightly")
    assert find_rustc(22).path == wanted


def test_missing_rust_src_names_the_command(home: Path) -> None:
    toolchain(home / ".rustup/toolchains/nightly-x", "1.97.0-nightly", sources=None)
    with pytest.raises(ToolError) as caught:
        find_rustc(22)
    assert caught.value.diagnostic.cure == "rustup component add rust-src --toolchain nightly-x"
    assert "rustc 1.97.0-nightly has no library sources" in caught.value.diagnostic.places[0]


def test_sources_of_another_version_are_refused(home: Path) -> None:
    toolchain(home, "1.96.0", sources="1.95.0")
    with pytest.raises(ToolError) as caught:
        find_rustc(22)
    library = f"{home}/lib/rustlib/src/rust/library"
    assert caught.value.diagnostic.places == (
        f"{home}/bin/rustc (on PATH): rustc 1.96.0 comes with library sources of 1.95.0 ({library})",
    )


def test_sources_in_a_folder_with_a_version_are_believed(home: Path) -> None:
    toolchain(home, "1.96.0")
    rust = home / "lib/rustlib/src/rust"
    rust.rename(home / "rustc-1.94.0")
    rust.symlink_to(home / "rustc-1.94.0")
    [found] = candidates(22)
    assert "comes with library sources of 1.94.0" in found.problem


def test_no_rustc_at_all(home: Path) -> None:
    with pytest.raises(ToolError) as caught:
        find_rustc(22)
    assert said(caught.value) == (
        "rglink: error: no usable rustc: wanted one with its library sources and LLVM up to 22 [no-rustc]\n"
        ">>> neither a rustup toolchain nor a rustc on PATH\n"
        ">>> help: rustup toolchain install nightly-2026-08-05 --component rust-src"
        " (or on Debian: apt install rustc-web rust-web-src)"
    )


def test_rustups_proxy_is_no_rustc_of_its_own(home: Path) -> None:
    (home / "bin").mkdir()
    (home / "bin/rustup").write_text("#!/bin/sh\nexit 1\n")
    (home / "bin/rustup").chmod(0o755)
    (home / "bin/rustc").symlink_to("rustup")
    assert list(candidates(22)) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("#!/bin/sh\necho broken >&2\nexit 9\n", "-vV` failed with exit code 9: broken"),
        ("#!/bin/sh\necho hello\n", "it does not answer `rustc -vV` as rustc with LLVM does"),
        ("no program at all", "-vV` failed: "),
    ],
)
def test_what_is_no_rustc_is_said(home: Path, text: str, problem: str) -> None:
    (home / "bin").mkdir()
    (home / "bin/rustc").write_text(text)
    (home / "bin/rustc").chmod(0o755)
    [found] = candidates(22)
    assert found.rustc is None
    assert problem in found.problem


def test_answers_are_remembered_until_the_program_changes(home: Path) -> None:
    program = toolchain(home)
    asked = home / "asked"
    first = find_rustc(22)
    assert asked.read_text() == "-vV\n--print sysroot\n"
    assert find_rustc(22) == first
    assert asked.read_text() == "-vV\n--print sysroot\n"
    program.write_text(program.read_text().replace("1.96.0", "1.96.1"))
    assert find_rustc(22).version == "1.96.1"


def test_a_damaged_memory_is_asked_again(home: Path) -> None:
    toolchain(home)
    first = find_rustc(22)
    for file in (home / "cache/rustc").iterdir():
        file.write_text('{"not": "it"')
    assert find_rustc(22) == first


@pytest.mark.rust
def test_the_real_one_has_sources_of_its_version() -> None:
    try:
        found: Rustc = find_rustc(22)
    except ToolError as error:
        pytest.skip(said(error))
    assert found.verbose.startswith(f"rustc {found.version} ")
    assert (found.library / "alloc/src/lib.rs").is_file()
    assert os.access(found.path, os.X_OK)
