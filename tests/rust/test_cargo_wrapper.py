"""`rglink-rustc` under a real cargo: which rustc calls it changes, and which it leaves alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rglink.frontend import cargo_config
from rglink.frontend.rustc import Rustc
from rglink.frontend.sysroot import Sysroot

pytestmark = pytest.mark.rust

WRAPPER = Path(cargo_config.__file__).with_name("rglink-rustc")
ADDED = (
    "-Zmir-enable-passes=-JumpThreading",
    "-Cno-prepopulate-passes",
    "-Zcross-crate-inline-threshold=never",
    "-Ccodegen-units=1",
    "-Cno-redzone=yes",
)
FILES = {
    "Cargo.toml": '[workspace]\nmembers = ["device", "host", "numbers"]\nresolver = "2"\n',
    "numbers/Cargo.toml": '[package]\nname = "numbers"\nversion = "0.1.0"\nedition = "2021"\n'
    "[lib]\nproc-macro = true\n",
    "numbers/src/lib.rs": "use proc_macro::TokenStream;\n#[proc_macro]\n"
    'pub fn two(_: TokenStream) -> TokenStream { "2".parse().unwrap() }\n',
    "device/Cargo.toml": '[package]\nname = "device"\nversion = "0.1.0"\nedition = "2021"\nbuild = "build.rs"\n'
    '[dependencies]\nnumbers = { path = "../numbers" }\n',
    "device/build.rs": 'fn main() { println!("cargo:rustc-cfg=from_build_script"); }\n',
    "device/src/lib.rs": "#![no_std]\n#[cfg(from_build_script)]\npub fn f() -> u32 { numbers::two!() }\n",
    "host/Cargo.toml": '[package]\nname = "host"\nversion = "0.1.0"\nedition = "2021"\n'
    '[dependencies]\nnumbers = { path = "../numbers" }\n',
    "host/src/main.rs": "fn main() { assert_eq!(numbers::two!(), 2); }\n",
}

Cargo = Callable[..., str]


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rustc: Rustc) -> Path:
    """A device crate with a build script and a proc-macro, a host crate with the proc-macro; rustc calls are logged."""
    for name in [name for name in os.environ if name.startswith(("CARGO", "RUST"))]:
        monkeypatch.delenv(name)
    for name, text in FILES.items():
        (tmp_path / "ws" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "ws" / name).write_text(text)
    # Arguments one a line, calls apart by a blank one.
    log = tmp_path / "log"
    logging = script(
        tmp_path / "bin/logged-rustc", f'{{ printf "%s\\n" "$@"; echo; }} >> {log}\nexec {rustc.path} "$@"'
    )
    (tmp_path / "bin/rglink-rustc").symlink_to(WRAPPER)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("RUSTC", str(logging))
    monkeypatch.setenv("RUSTC_BOOTSTRAP", "1")
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "cargo-home"))
    monkeypatch.setenv("CARGO_NET_OFFLINE", "true")
    return tmp_path / "ws"


@pytest.fixture
def cargo(workspace: Path, rustc: Rustc) -> Cargo:
    """`cargo("build")`: what cargo said."""
    beside = rustc.path.with_name("cargo")
    program = str(beside) if beside.exists() else shutil.which("cargo")
    if program is None:
        pytest.skip(f"no cargo: neither {beside} nor one on PATH")

    def run(*arguments: str) -> str:
        done = subprocess.run([program, *arguments], cwd=workspace, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr

    return run


def calls(workspace: Path) -> list[list[str]]:
    """The rustc calls since the last look that compile a crate."""
    log = workspace.parent / "log"
    found = [
        call.split("\n") for call in log.read_text().split("\n\n") if "--print" not in call and "--crate-name" in call
    ]
    log.write_text("")
    return found


def crate_of(call: list[str]) -> str:
    return call[call.index("--crate-name") + 1]


def is_for_device(call: list[str]) -> bool:
    return "nvptx64-nvidia-cuda" in call


def write_config(workspace: Path) -> None:
    assert cargo_config.main(["--write", "--manifest-dir", str(workspace)]) == 0


def use_device_sysroot(workspace: Path, sysroot: Sysroot) -> None:
    """As `-Zbuild-std` would, without a minute of compiling: it is not the wrapper that is about core."""
    config = workspace / ".cargo/config.toml"
    config.parent.mkdir(exist_ok=True)
    flags = f'[target.nvptx64-nvidia-cuda]\nrustflags = ["--sysroot={sysroot.directory}"]\n'
    config.write_text(flags + (config.read_text() if config.exists() else ""))


def test_host_crates_are_left_alone_and_built_once_more(workspace: Path, cargo: Cargo) -> None:
    cargo("build")
    before = calls(workspace)
    assert sorted({crate_of(call) for call in before}) == ["build_script_build", "device", "host", "numbers"]
    write_config(workspace)
    assert "Compiling host" in cargo("build")
    after = calls(workspace)

    def without_hashes(found: list[list[str]]) -> list[str]:
        return sorted(re.sub(r"-[0-9a-f]{16}|=[0-9a-f]{16}", "", " ".join(call)) for call in found)

    assert without_hashes(after) == without_hashes(before)
    assert "Compiling" not in cargo("build")
    assert calls(workspace) == []


def test_device_crates_get_the_flags(workspace: Path, cargo: Cargo, sysroot: Sysroot) -> None:
    use_device_sysroot(workspace, sysroot)
    build = ("build", "-p", "device", "--target", "nvptx64-nvidia-cuda")
    cargo(*build)
    assert not any(flag in call for call in calls(workspace) for flag in ADDED)
    write_config(workspace)
    assert "Compiling device" in cargo(*build), "a crate compiled without the flags is not taken for one with"
    found = calls(workspace)
    [device] = [call for call in found if is_for_device(call)]
    assert device[-7:] == [*ADDED, f"--remap-path-prefix={workspace}=.", "-Wlinker-messages"]
    others = [call for call in found if not is_for_device(call)]
    assert sorted(crate_of(call) for call in others) == ["build_script_build", "numbers"]
    assert not any(flag in call for call in others for flag in (*ADDED, "-Wlinker-messages"))


def test_cargo_check_is_left_alone(workspace: Path, cargo: Cargo, sysroot: Sysroot) -> None:
    use_device_sysroot(workspace, sysroot)
    write_config(workspace)
    cargo("check", "-p", "device", "--target", "nvptx64-nvidia-cuda")
    [device] = [call for call in calls(workspace) if is_for_device(call)]
    assert not any(flag in device for flag in (*ADDED, "-Wlinker-messages"))


def test_an_older_wrapper_is_called_in_turn(workspace: Path, cargo: Cargo, sysroot: Sysroot) -> None:
    seen = workspace.parent / "older-log"
    script(workspace / "tools/older", f'echo "$*" >> {seen}\nexec "$@"')
    use_device_sysroot(workspace, sysroot)
    config = workspace / ".cargo/config.toml"
    config.write_text(config.read_text() + '[build]\nrustc-wrapper = "tools/older"\n')
    write_config(workspace)
    cargo("build", "-p", "device", "--target", "nvptx64-nvidia-cuda")
    [device] = [call for call in calls(workspace) if is_for_device(call)]
    assert set(ADDED) <= set(device)
    through = [line for line in seen.read_text().splitlines() if "--crate-name device" in line]
    assert len(through) == 1
    assert all(flag in through[0] for flag in ADDED), "the older one sees what rustc gets: a cache's key is right"


def test_a_workspace_wrapper_stays_between(
    workspace: Path, cargo: Cargo, sysroot: Sysroot, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = workspace.parent / "workspace-log"
    monkeypatch.setenv(
        "RUSTC_WORKSPACE_WRAPPER", str(script(workspace / "tools/ws", f'echo "$*" >> {seen}\nexec "$@"'))
    )
    use_device_sysroot(workspace, sysroot)
    write_config(workspace)
    cargo("build", "-p", "device", "--target", "nvptx64-nvidia-cuda")
    [device] = [call for call in calls(workspace) if is_for_device(call)]
    assert set(ADDED) <= set(device)
    assert "--crate-name device" in seen.read_text()


# Calls as cargo makes them; `+` where flags are added.
DIRECT = [
    "+ --crate-name k --emit=dep-info,metadata,link --target nvptx64-nvidia-cuda",
    "+ --crate-name k --emit dep-info,link --target=nvptx64-nvidia-cuda",
    "+ --crate-name k k.rs --target nvptx64-nvidia-cuda",
    "  --crate-name core --emit=link --target nvptx64-nvidia-cuda",
    "  --crate-name=alloc --emit=link --target nvptx64-nvidia-cuda",
    "  --crate-name compiler_builtins --emit=link --target nvptx64-nvidia-cuda",
    "  --crate-name k --emit=dep-info,metadata --target nvptx64-nvidia-cuda",
    "  - --crate-name ___ --print=file-names --target nvptx64-nvidia-cuda",
    "  --crate-name k --emit=link --target x86_64-unknown-linux-gnu",
    "  --crate-name k --emit=link",
]


@pytest.mark.parametrize("line", DIRECT)
def test_one_call(line: str, tmp_path: Path) -> None:
    show = script(tmp_path / "show", 'printf "%s\\n" "$@"; exit 7')
    arguments = [*line[1:].split(), "an argument with spaces and 'quotes'", ""]
    done = subprocess.run([WRAPPER, show, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 7
    added = [*ADDED, f"--remap-path-prefix={tmp_path}=.", "-Wlinker-messages"] if line[0] == "+" else []
    assert done.stdout.splitlines() == arguments + added


def test_the_environment_is_left_alone(tmp_path: Path) -> None:
    """A shell's variable that the environment has exported would go to rustc changed."""
    script(tmp_path / "show", "env | grep -v '^_=' | sort")
    names = ("target", "crate", "emit", "print", "query", "previous", "argument", "HOME", "PATH", "PWD")
    env = dict.fromkeys(names, "kept") | {"PATH": os.environ["PATH"], "PWD": str(tmp_path)}
    done = subprocess.run(
        [WRAPPER, "./show", "--target", "nvptx64-nvidia-cuda"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert dict(line.split("=", 1) for line in done.stdout.splitlines()) == env


def test_version_has_one_more_line_and_failures_pass(tmp_path: Path) -> None:
    good = script(tmp_path / "good", 'echo "rustc 1.2.3"')
    done = subprocess.run([WRAPPER, good, "-vV"], capture_output=True, text=True, check=True)
    assert done.stdout == "rustc 1.2.3\nrglink-rustc: 1\n"
    bad = script(tmp_path / "bad", "exit 5")
    assert subprocess.run([WRAPPER, bad, "-vV"], capture_output=True, check=False).returncode == 5


def test_a_wrapper_that_is_ours_again_is_called_once(tmp_path: Path) -> None:
    show = script(tmp_path / "show", 'echo "$*"')
    done = subprocess.run(
        [WRAPPER, show, "x"], env=os.environ | {"RGLINK_RUSTC_WRAPPER": str(WRAPPER)}, capture_output=True, text=True,
        check=True, timeout=20,
    )  # fmt: skip
    assert done.stdout == "x\n"
