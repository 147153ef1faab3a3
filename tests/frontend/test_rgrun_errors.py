"""What `rgrun` says of bad input, bad usage and bad kernels: whole texts, and never a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rglink.frontend.rgrun import main
from tests.tools import tool

KERNELS = """\
.version 8.6
.target sm_90
.address_size 64
.file 1 "k.rs"
.visible .entry spin()
{
.reg .b32 %r<4>;
.loc 1 2 5
again: add.u32 %r0, %r0, 1;
.loc 1 3 9
add.u32 %r0, %r0, 1; bra again;
}
.visible .entry wild(.param .u64 out)
{
.reg .b32 %r<4>; .reg .b64 %rd<4>;
.loc 1 5 5
ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd0, %rd0, %rd1;
st.global.u32 [%rd0], %r0;
ret;
}
.visible .entry stuck()
{
.reg .b32 %r<4>; .reg .pred %p<2>;
.loc 1 7 1
mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 32; @%p0 bra done;
.loc 1 8 5
bar.sync 0;
done:
.loc 1 9 5
bar.sync 1;
ret;
}
.visible .entry trapped() { .loc 1 10 1
trap; ret; }
.visible .entry odd() { wgmma.fence.sync.aligned; ret; }
.visible .entry slices(.param .align 8 .b8 a[16], .param .u32 n) { ret; }
.visible .entry _RINvCs1_1k5scalefE() { ret; }
.visible .entry _RINvCs1_1k5scaledE() { ret; }
"""
SOURCE = "fn spin() {\n    loop {\n        step();\n    }\n    *out.add(i) = i;\n\n\n    sync_a();\n    sync_b();\n"

Rgrun = Callable[..., tuple[int, str]]


@pytest.fixture
def rgrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Rgrun:
    """`rgrun("k.ptx", ...)` where k.ptx and k.rs are: the exit code and stderr; nothing was printed to stdout."""
    (tmp_path / "k.ptx").write_text(KERNELS)
    (tmp_path / "k.rs").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str]:
        code = main(list(words))
        printed = capsys.readouterr()
        assert printed.out == ""
        return code, printed.err

    return run


def test_a_loop_without_end_is_reported_with_its_line(rgrun: Rgrun) -> None:
    assert rgrun("k.ptx", "--kernel", "spin", "--steps", "1000") == (
        1,
        "rgrun: error: no end after 1002 instructions of one thread (the step budget is 1000) [endless-loop]\n"
        ">>> k.rs:2\n"
        ">>>     2 | loop {\n"
        ">>> kernel spin, block (0, 0, 0), thread (0, 0, 0)\n"
        ">>> PTX line 9: add.u32\n",
    )


def test_an_access_out_of_bounds_names_allocation_and_distance(rgrun: Rgrun) -> None:
    assert rgrun("k.ptx", "--kernel", "wild", "--block", "32", "--arg", "u32[10]") == (
        1,
        "rgrun: error: kernel wild: out of bounds: 4 bytes at 0x100000000128, 4 bytes past the end of the array of"
        " argument 1 of wild (40 bytes) [out-of-bounds]\n"
        ">>> k.rs:5: access by thread (10, 0, 0) of block (0, 0, 0) (PTX line 18: st.global.u32)\n"
        ">>>     5 | *out.add(i) = i;\n",
    )


def test_a_deadlock_shows_both_barriers(rgrun: Rgrun) -> None:
    assert rgrun("k.ptx", "--kernel", "stuck", "--block", "64", "--check", "none") == (
        1,
        "rgrun: error: deadlock in kernel stuck: 64 threads have not ended and none can go on [deadlock]\n"
        ">>> k.rs:8, PTX line 27: 32 threads wait for barrier 0, the first is thread (32, 0, 0) of block (0, 0, 0)\n"
        ">>>     8 | sync_a();\n"
        ">>> k.rs:9, PTX line 30: 32 threads wait for barrier 1, the first is thread (0, 0, 0) of block (0, 0, 0)\n"
        ">>>     9 | sync_b();\n",
    )


def test_a_trap_fails_the_run(rgrun: Rgrun) -> None:
    code, text = rgrun("k.ptx", "--kernel", "trapped")
    assert code == 1
    assert text.startswith("rgrun: error: ")
    assert ">>> k.rs:10\n" in text


def test_a_foreign_instruction_is_named_with_line_and_kernel(rgrun: Rgrun) -> None:
    assert rgrun("k.ptx", "--kernel", "odd") == (
        1,
        "rgrun: error: k.ptx: line 35: in odd: unsupported instruction wgmma.fence.sync.aligned"
        " [unsupported-instruction]\n",
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            "--kernel slices --arg u32[4]",
            "rgrun: error: kernel slices takes 2 arguments, 1 was given [bad-arguments]\n"
            ">>> parameters: .b8[16], .u32\n>>> arguments: u32[4]\n",
        ),
        (
            "--kernel slices --arg u32[4] --arg u32=4",
            "rgrun: error: argument 1 of kernel slices is u32[4] (a pointer, 8 bytes), the parameter has 16 bytes"
            " [bad-arguments]\n>>> parameters: .b8[16], .u32\n>>> arguments: u32[4], u32\n"
            ">>> help: a Rust slice is pointer and length: --arg 'slice:u32[4]'\n",
        ),
        (
            "--kernel slices --arg slice:u32[4] --arg u64=4",
            "rgrun: error: argument 2 of kernel slices is u64 (8 bytes), the parameter has 4 bytes [bad-arguments]\n"
            ">>> parameters: .b8[16], .u32\n>>> arguments: slice:u32[4], u64\n",
        ),
        (
            "--kernel wild --arg slice:u32[4]",
            "rgrun: error: argument 1 of kernel wild is slice:u32[4] (pointer and length, 16 bytes), the parameter has"
            " 8 bytes [bad-arguments]\n>>> parameters: .u64\n>>> arguments: slice:u32[4]\n"
            ">>> help: a pointer is passed without `slice:`\n",
        ),
        (
            "--kernel spin --arg u32=1",
            "rgrun: error: kernel spin takes 0 arguments, 1 was given [bad-arguments]\n"
            ">>> parameters: none\n>>> arguments: u32\n",
        ),
        (
            "--kernel wild --arg hex=00ff",
            "rgrun: error: argument 1 of kernel wild is hex of 2 bytes (2 bytes), the parameter has 8 bytes"
            " [bad-arguments]\n>>> parameters: .u64\n>>> arguments: hex of 2 bytes\n",
        ),
        (
            "--kernel spin --grid 4000x1x70000",
            "rgrun: error: grid (4000, 1, 70000) is larger than a device takes (2147483647, 65535, 65535)"
            " [bad-launch]\n",
        ),
        (
            "--kernel spin --grid 8000000 --block 1024 --check none",
            "rgrun: error: kernel spin: 8192000000 threads with 3 instructions or more each would run for about"
            " 4 minutes or more [long-run]\n>>> help: run fewer blocks, or allow it with --allow-long\n",
        ),
        (
            "--kernel wild --grid 100000 --block 1024 --schedules 9 --arg u32[1]",
            "rgrun: error: kernel wild: 102400000 threads with 6 instructions or more each 9 times would run for about"
            " 3 minutes or more [long-run]\n>>> help: run fewer blocks, or allow it with --allow-long\n",
        ),
        (
            "--kernel spin --grid 20000000000 --block 1024 --check none",
            "rgrun: error: kernel spin: 20480000000000 threads with 3 instructions or more each would run for about"
            " 171 hours or more [long-run]\n>>> help: run fewer blocks, or allow it with --allow-long\n",
        ),
        (
            "--kernel spin --grid 8000000 --block 1024 --allow-long",
            "rgrun: error: spin: 8192000000 threads, the machine takes 536870911; at 100 million instructions a second"
            " this would be 4 minutes and more [bad-launch]\n",
        ),
        (
            "--kernel spin --block 1025",
            "rgrun: error: block (1025, 1, 1) has 1025 threads, a block may have 1024 (and 64 in z) [bad-launch]\n",
        ),
        (
            "--kernel spin --grid 0",
            "rgrun: error: --grid 0: wanted one to three positive numbers as 4, 16x16 or 2x2x2 [usage]\n",
        ),
        (
            "--kernel spin --block 1x2x3x4",
            "rgrun: error: --block 1x2x3x4: wanted one to three positive numbers as 4, 16x16 or 2x2x2 [usage]\n",
        ),
        (
            "--kernel spin --shared 300000",
            "rgrun: error: 300000 bytes of shared memory, a block may have 232448 [bad-launch]\n",
        ),
        (
            "--kernel wilt",
            "rgrun: error: k.ptx: no kernel wilt, did you mean wild [no-kernel]\n"
            ">>> _RINvCs1_1k5scaledE  k::scale::<f64>\n>>> _RINvCs1_1k5scalefE  k::scale::<f32>\n"
            ">>> odd\n>>> slices\n>>> spin\n>>> stuck\n>>> trapped\n>>> wild\n",
        ),
        (
            "--kernel k::scale",
            "rgrun: error: k.ptx: several kernels are called k::scale; choose by symbol [no-kernel]\n"
            ">>> _RINvCs1_1k5scaledE  k::scale::<f64>\n>>> _RINvCs1_1k5scalefE  k::scale::<f32>\n",
        ),
        (
            "",
            "rgrun: error: k.ptx: say which kernel to run with --kernel [no-kernel]\n"
            ">>> _RINvCs1_1k5scaledE  k::scale::<f64>\n>>> _RINvCs1_1k5scalefE  k::scale::<f32>\n"
            ">>> odd\n>>> slices\n>>> spin\n>>> stuck\n>>> trapped\n>>> wild\n",
        ),
    ],
)
def test_wrong_usage_is_code_2(rgrun: Rgrun, words: str, text: str) -> None:
    assert rgrun("k.ptx", *words.split()) == (2, text)


def test_a_generic_kernel_is_named_with_its_types(rgrun: Rgrun) -> None:
    assert rgrun("k.ptx", "--kernel", "k::scale::<f32>") == (0, "")


def test_an_unknown_check_lists_the_known(rgrun: Rgrun) -> None:
    code, text = rgrun("k.ptx", "--kernel", "spin", "--check", "races,race")
    assert code == 2
    assert text.startswith(
        "rgrun: error: --check races,race: no check is called races; there are all, none, async-copy, "
    )


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        (
            "a.ll",
            b'target triple = "nvptx64-nvidia-cuda"\n',
            "rgrun: error: a.ll: is textual LLVM IR, wanted a fat binary or PTX [not-runnable]\n"
            ">>> help: link it first: rglink a.ll -o app.fatbin --arch compute_75\n",
        ),
        (
            "a.rgo",
            b"BC\xc0\xde" + bytes(16),
            "rgrun: error: a.rgo: is LLVM bitcode, wanted a fat binary or PTX [not-runnable]\n"
            ">>> help: link it first: rglink a.rgo -o app.fatbin --arch compute_75\n",
        ),
        (
            "a.txt",
            b"hello world, this is text\n",
            "rgrun: error: a.txt: is a text file, wanted a fat binary or PTX [not-runnable]\n",
        ),
        (
            "a.fatbin",
            bytes.fromhex("50ed55ba0100100000010000") + bytes(4),
            "rgrun: error: a.fatbin: is truncated: 16 bytes, its header says 272 [bad-input]\n",
        ),
        (
            "a.ptx",
            KERNELS[: KERNELS.index("mul.wide")].encode(),
            "rgrun: error: a.ptx: line 17: the text ends in function wild [bad-ptx]\n",
        ),
        (
            "empty.ptx",
            KERNELS[: KERNELS.index(".file")].encode(),
            "rgrun: error: empty.ptx: holds no kernel [no-kernel]\n",
        ),
    ],
)
def test_what_cannot_run_is_told_by_content(rgrun: Rgrun, name: str, data: bytes, text: str) -> None:
    Path(name).write_bytes(data)
    assert rgrun(name) == (1, text)


def test_every_cut_of_a_file_is_one_clear_error(rgrun: Rgrun) -> None:
    for end in range(len(KERNELS) - 2, 60, -7):
        Path("cut.ptx").write_text(KERNELS[:end])
        code, text = rgrun("cut.ptx", "--kernel", "none")
        assert code in (1, 2), end
        assert text.startswith("rgrun: error: cut.ptx: "), end


def test_a_fat_binary_without_ptx_says_which_to_add(rgrun: Rgrun) -> None:
    (Path("k.ll")).write_text(
        'target triple = "nvptx64-nvidia-cuda"\n'
        "define ptx_kernel void @k(ptr %p) {\n  store i32 1, ptr %p\n  ret void\n}\n"
    )
    for arch, code in (("sm_90", 1), ("sm_90,compute_90", 0)):
        command = [tool("rglink"), "k.ll", "-o", "app.fatbin", "--arch", arch]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        if code:
            assert rgrun("app.fatbin", "--arg", "u32[1]") == (
                1,
                "rgrun: error: app.fatbin: holds no PTX, only sm_90 [no-ptx]\n"
                ">>> help: link it with `--arch compute_90` as well\n",
            )
        else:
            assert main(["app.fatbin", "--arg", "u32[1]"]) == 0


def test_missing_files_and_folders(rgrun: Rgrun) -> None:
    assert rgrun("missing.ptx") == (1, "rgrun: error: missing.ptx: no such file [bad-input]\n")
    assert rgrun(".") == (1, "rgrun: error: .: is a folder, wanted a file [bad-input]\n")
    words = ["k.ptx", "--kernel", "wild", "--arg"]
    assert rgrun(*words, "@x.npy") == (
        1,
        "rgrun: error: x.npy: cannot be read: No such file or directory [bad-input]\n",
    )
    assert rgrun(*words, "no/y.npy:u32[1]") == (
        1,
        "rgrun: error: no/y.npy: cannot be written: No such file or directory [bad-input]\n",
    )
    assert rgrun(*words, "u32[1]", "--trace", "no/t.txt") == (
        1,
        "rgrun: error: no/t.txt: cannot be written: No such file or directory [bad-input]\n",
    )


def test_errors_as_json(tmp_path: Path, rgrun: Rgrun, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["k.ptx", "--kernel", "wild", "--json"]) == 2
    printed = capsys.readouterr()
    assert printed.err == ""
    assert json.loads(printed.out) == {
        "error": {
            "slug": "bad-arguments",
            "message": "kernel wild takes 1 argument, 0 were given",
            "places": ["parameters: .u64", "arguments: none"],
            "help": None,
        },
        "output": "",
    }


def test_argparse_says_what_is_wrong_with_an_option(rgrun: Rgrun, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--schedules", "0"], ["--steps", "x"], ["--shared", "-1"], ["--nonsense"]):
        with pytest.raises(SystemExit) as stopped:
            main(["k.ptx", *words])
        assert stopped.value.code == 2
        assert capsys.readouterr().err.splitlines()[-1].startswith("rgrun: error: ")


def test_ctrl_c_ends_a_run_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(KERNELS)
    command = [tool("rgrun"), "k.ptx", "--kernel", "spin", "--steps", "1000000000000", "--trace", "t.txt"]
    running = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    trace = tmp_path / "t.txt"
    deadline = time.monotonic() + 30
    # The trace tells that the kernel runs.
    while not (trace.exists() and trace.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err) == (
        130,
        "",
        "rgrun: error: interrupted before the kernel ended; no result was printed or saved [interrupted]\n",
    )


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(KERNELS)
    command = f"'{tool('rgrun')}' k.ptx --list | true; echo \"${{PIPESTATUS[0]}}\""
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.strip() in ("0", "141")
