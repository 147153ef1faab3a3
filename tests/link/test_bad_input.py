"""Bad input of the common kinds: one clear error each, its exit code, no traceback, no output, older output kept."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import require_rustc, run

KERNEL = """\
target triple = "nvptx64-nvidia-cuda"
define ptx_kernel void @k(ptr %out) {
  store i32 1, ptr %out
  ret void
}
"""


def refusal(folder: Path, *argv: str, code: int = 1) -> str:
    """What a link that must fail prints; nothing else may have happened in the folder."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = run(["rglink", *argv], folder)
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert done.returncode == code, done.stdout + done.stderr
    assert before == after
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "k.ll").write_text(KERNEL)
    (tmp_path / "old.fatbin").write_bytes(b"an older result")
    return tmp_path


def test_a_missing_file(folder: Path) -> None:
    assert refusal(folder, "gone.rgo", "k.ll", "-o", "old.fatbin") == (
        "rglink: error: gone.rgo: no such file [bad-input]\n"
    )


def test_an_empty_file(folder: Path) -> None:
    (folder / "empty.rgo").write_bytes(b"")
    assert refusal(folder, "empty.rgo", "k.ll", "-o", "old.fatbin") == (
        "rglink: error: empty.rgo: is empty [bad-input]\n"
    )


def test_a_folder(folder: Path) -> None:
    (folder / "dir.rgo").mkdir()
    assert "rglink: error: dir.rgo: is a folder" in refusal(folder, "dir.rgo", "-o", "old.fatbin")


def test_a_text_file_named_rgo(folder: Path) -> None:
    (folder / "notes.rgo").write_text("remember the milk\n")
    assert refusal(folder, "notes.rgo", "-o", "old.fatbin").startswith(
        "rglink: error: notes.rgo: is a text file, not an .rgo: wanted"
    )


def test_an_elf_host_object(folder: Path) -> None:
    shutil.copy(sys.executable, folder / "host.o")
    assert refusal(folder, "host.o", "-o", "old.fatbin").startswith("rglink: error: host.o: is an ELF host")


def test_several_bad_files_are_told_in_one_go(folder: Path) -> None:
    (folder / "empty.rgo").write_bytes(b"")
    lines = refusal(folder, "gone.rgo", "empty.rgo", "-o", "old.fatbin").splitlines()
    assert [line.split(": ")[2] for line in lines] == ["gone.rgo", "empty.rgo"]


def test_bitcode_for_another_target(folder: Path) -> None:
    for triple, words in (("x86_64-unknown-linux-gnu", "is for x86_64-unknown-linux-gnu"), ("", "names no target")):
        header = f'target triple = "{triple}"\n' if triple else ""
        (folder / "host.ll").write_text(header + "define void @f() {\n  ret void\n}\n")
        said = refusal(folder, "host.ll", "k.ll", "-o", "old.fatbin")
        assert said == (
            f"rglink: error: host.ll: {words}, wanted nvptx64-nvidia-cuda [wrong-target]\n"
            ">>> help: compile it with --target nvptx64-nvidia-cuda\n"
        )


def test_an_unknown_architecture(folder: Path) -> None:
    said = refusal(folder, "k.ll", "-o", "old.fatbin", "--arch", "sm_91", code=2)
    assert said.startswith("rglink: error: sm_91: unknown architecture; supported: sm_75")


def test_no_kernels(folder: Path) -> None:
    (folder / "lib.ll").write_text('target triple = "nvptx64-nvidia-cuda"\ndefine void @f() {\n  ret void\n}\n')
    assert refusal(folder, "lib.ll", "-o", "old.fatbin").startswith(
        "rglink: error: no kernels found [no-kernels]\n>>> lib.ll: "
    )


def test_a_missing_output_folder(folder: Path) -> None:
    assert refusal(folder, "k.ll", "-o", "nowhere/app.fatbin") == (
        "rglink: error: nowhere/app.fatbin: output folder nowhere does not exist [output]\n"
    )


def test_an_output_that_is_an_input(folder: Path) -> None:
    assert refusal(folder, "k.ll", "-o", "k.ll", code=2) == "rglink: error: -o k.ll: is an input [usage]\n"


def test_textual_ir_that_llvm_refuses(folder: Path) -> None:
    (folder / "bad.ll").write_text('target triple = "nvptx64-nvidia-cuda"\ndefine void @f() {\n  frobnicate\n}\n')
    said = refusal(folder, "bad.ll", "-o", "old.fatbin")
    assert said.startswith("rglink: error: bad.ll: ")
    assert "expected instruction opcode" in said


def test_a_single_cubin_of_several_architectures(folder: Path) -> None:
    assert refusal(folder, "k.ll", "-o", "a.cubin", "--arch", "sm_80,sm_90", code=2) == (
        "rglink: error: a .cubin holds one architecture: sm_80, sm_90 were asked for [usage]\n"
        ">>> help: --arch sm_90, or a .fatbin\n"
    )


@pytest.fixture(scope="module")
def rgo(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A real `.rgo` with one kernel."""
    require_rustc()
    folder = tmp_path_factory.mktemp("rgo")
    source = "#![no_std]\n#![feature(abi_ptx)]\n" + (
        '#[unsafe(no_mangle)]\npub unsafe extern "ptx-kernel" fn k(out: *mut u32) {\n    unsafe { *out = 1 }\n}\n'
    )
    (folder / "k.rs").write_text(source)
    done = run(["rgcc", "-c", "k.rs", "-o", "k.rgo", "--edition", "2024"], folder)
    assert done.returncode == 0, done.stderr
    return (folder / "k.rgo").read_bytes()


@pytest.mark.rust
def test_the_undamaged_rgo_links(folder: Path, rgo: bytes) -> None:
    (folder / "a.rgo").write_bytes(rgo)
    assert run(["rglink", "a.rgo", "-o", "a.fatbin"], folder).returncode == 0


@pytest.mark.rust
@pytest.mark.parametrize("share", [0.01, 0.3, 0.6, 0.999])
def test_a_truncated_rgo(folder: Path, rgo: bytes, share: float) -> None:
    (folder / "a.rgo").write_bytes(rgo[: int(len(rgo) * share)])
    said = refusal(folder, "a.rgo", "-o", "old.fatbin")
    assert said.startswith("rglink: error: a.rgo: ")
    assert "truncated" in said


@pytest.mark.rust
@pytest.mark.parametrize("share", [0.0, 0.001, 0.2, 0.5, 0.8, 0.99])
def test_a_flipped_bit_in_an_rgo(folder: Path, rgo: bytes, share: float) -> None:
    damaged = bytearray(rgo)
    damaged[int(len(rgo) * share)] ^= 0x10
    (folder / "a.rgo").write_bytes(damaged)
    assert refusal(folder, "a.rgo", "-o", "old.fatbin").startswith("rglink: error: a.rgo: ")


def test_an_interrupted_link_leaves_nothing(folder: Path) -> None:
    import signal
    import time

    from tests.tools import tool

    before = sorted(path.name for path in folder.iterdir())
    running = subprocess.Popen(
        [tool("rglink"), "k.ll", "-o", "new.fatbin", "--arch", "all"], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    time.sleep(0.4)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode in (0, 130), said
    assert "Traceback" not in said
    after = sorted(path.name for path in folder.iterdir())
    assert after == before or after == sorted([*before, "new.fatbin"])
