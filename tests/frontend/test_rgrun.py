"""`rgrun` from arguments to results: what it prints, saves and reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rglink.arch import parse_arch_list
from rglink.frontend.rgrun import main
from rglink.nvjitlink.job import CodegenResult
from rglink.nvjitlink.pack import pack_fatbin

HEAD = ".version 8.6\n.target sm_90\n.address_size 64\n"
REGISTERS = """
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .f32 %f<8>; .reg .b64 %rd<16>;
"""
# y[i] = a * x[i] + y[i] for i below n; x and y are pointers.
SAXPY = f"""
.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .u64 n, .param .f32 a)
{{{REGISTERS}
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r0, %r1, %r2, %r0;
cvt.u64.u32 %rd0, %r0; ld.param.u64 %rd1, [n]; setp.ge.u64 %p0, %rd0, %rd1; @%p0 bra done;
ld.param.u64 %rd2, [x]; ld.param.u64 %rd3, [y]; ld.param.f32 %f0, [a];
shl.b64 %rd0, %rd0, 2; add.u64 %rd2, %rd2, %rd0; add.u64 %rd3, %rd3, %rd0;
ld.global.f32 %f1, [%rd2]; ld.global.f32 %f2, [%rd3]; mul.rn.f32 %f1, %f1, %f0; add.rn.f32 %f2, %f2, %f1;
st.global.f32 [%rd3], %f2;
done:
ret;
}}
"""
# As rustc passes `&[u32]` and `&mut [u32]`: out[i] = source[i] * 2 for i below the smaller length.
DOUBLE = f"""
.visible .entry _RNvCs1234_6sample6double(.param .align 8 .b8 source[16], .param .align 8 .b8 target[16])
{{{REGISTERS}
mov.u32 %r0, %tid.x; cvt.u64.u32 %rd0, %r0;
ld.param.u64 %rd1, [source]; ld.param.u64 %rd2, [source+8]; ld.param.u64 %rd3, [target]; ld.param.u64 %rd4, [target+8];
min.u64 %rd2, %rd2, %rd4; setp.ge.u64 %p0, %rd0, %rd2; @%p0 bra done;
shl.b64 %rd0, %rd0, 2; add.u64 %rd1, %rd1, %rd0; add.u64 %rd3, %rd3, %rd0;
ld.global.u32 %r1, [%rd1]; shl.b32 %r1, %r1, 1; st.global.u32 [%rd3], %r1;
done:
ret;
}}
"""
HELLO = f"""
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .align 1 .b8 text[16] = {{{", ".join(str(b) for b in b"thread %d" + bytes([10]) + bytes(6))}}};
.visible .entry hello()
{{{REGISTERS}
.local .align 8 .b8 stack[8];
mov.u32 %r0, %tid.x; mov.u64 %rd0, stack; st.local.u32 [%rd0], %r0; cvta.local.u64 %rd1, %rd0;
mov.u64 %rd2, text; cvta.global.u64 %rd3, %rd2;
{{ .param .b64 p0; .param .b64 p1; .param .b32 q;
st.param.b64 [p0], %rd3; st.param.b64 [p1], %rd1;
call (q), vprintf, (p0, p1); }}
ret;
}}
"""
# Thread 0 writes `cell`, all threads read it; with a barrier between only if `safe` is not 0.
RACY_RS = """\
fn racy(out: *mut u32, safe: u32) {
    if me() == 0 { CELL.set(7); }
    if safe != 0 { barrier(); }
    out[me()] = CELL.get();
}
"""
RACY = f"""
.file 1 "racy.rs"
.shared .align 4 .u32 cell;
.visible .entry racy(.param .u64 out, .param .u32 safe)
{{{REGISTERS}
mov.u32 %r0, %tid.x; setp.ne.u32 %p0, %r0, 0; @%p0 bra written;
.loc 1 2 20
mov.u32 %r1, 7; st.shared.u32 [cell], %r1;
written:
.loc 1 3 19
ld.param.u32 %r2, [safe]; setp.eq.u32 %p1, %r2, 0; @%p1 bra read;
bar.sync 0;
read:
.loc 1 4 17
ld.shared.u32 %r3, [cell];
.loc 1 4 5
ld.param.u64 %rd0, [out]; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd0, %rd0, %rd1; st.global.u32 [%rd0], %r3;
ret;
}}
"""

Rgrun = Callable[..., tuple[int, str, str]]


@pytest.fixture
def rgrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Rgrun:
    """`rgrun("k.ptx", "--grid", "4", ...)` in a folder of this test with k.ptx and racy.rs: code, stdout, stderr."""
    text = HEAD + SAXPY + DOUBLE + HELLO + RACY
    (tmp_path / "k.ptx").write_text(text)
    (tmp_path / "racy.rs").write_text(RACY_RS)
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_results_of_a_launch_are_printed(rgrun: Rgrun) -> None:
    command = "k.ptx --kernel saxpy --grid 2 --block 4 --arg f32[6]=arange --arg y:f32[6]=ones --arg u64=6 --arg f32=2"
    assert rgrun(*command.split()) == (0, "y: f32[6] =\n  [ 1.  3.  5.  7.  9. 11.]\n", "")


def test_a_fat_binary_runs_as_its_ptx(rgrun: Rgrun) -> None:
    result = CodegenResult(parse_arch_list("compute_90")[0], (HEAD + HELLO).encode(), None, "")
    Path("k.fatbin").write_bytes(pack_fatbin([result]))
    assert rgrun("k.fatbin", "--block", "2") == (0, "thread 0\nthread 1\n", "")


def test_slices_are_pointer_and_length(rgrun: Rgrun) -> None:
    arguments = ["--arg", "slice:u32[4]=1,2,3,4", "--arg", "out:slice:u32[3]=9"]
    assert rgrun("k.ptx", "--kernel", "sample::double", "--block", "32", *arguments) == (
        0,
        "arg2: slice:u32[3] =\n  [2 4 6]\n",
        "",
    )
    assert rgrun("k.ptx", "--kernel", "double", "--block", "2", *arguments)[1] == "arg2: slice:u32[3] =\n  [2 4 9]\n"


def test_arrays_come_from_files_and_go_to_files(rgrun: Rgrun) -> None:
    np.save("x.npy", np.arange(8, dtype=np.float32))
    command = "k.ptx --kernel saxpy --block 8 --arg @x.npy --arg y.npy:f32[8]=1 --arg u64=8 --arg f32=-1 --save 1=z.npy"
    code, out, err = rgrun(*command.split())
    assert (code, err) == (0, "")
    assert out == "arg1: f32[8] =\n  [0. 1. 2. 3. 4. 5. 6. 7.]\narg2: f32[8] =\n  [ 1.  0. -1. -2. -3. -4. -5. -6.]\n"
    assert np.load("y.npy").tolist() == [1, 0, -1, -2, -3, -4, -5, -6]
    assert np.load("z.npy").tolist() == [0, 1, 2, 3, 4, 5, 6, 7]


def test_long_arrays_are_cut_and_random_data_repeats(rgrun: Rgrun) -> None:
    command = ["k.ptx", "--kernel", "saxpy", "--grid", "4", "--block", "256", "--arg", "f32[1024]=random"]
    command += ["--arg", "y:f32[1024]=0", "--arg", "u64=1024", "--arg", "f32=1", "--data-seed"]
    first, again, other = rgrun(*command, "1"), rgrun(*command, "1"), rgrun(*command, "2")
    assert first == again
    assert first[1] != other[1]
    head, values = first[1].splitlines()
    assert head == "y: f32[1024] ="
    assert len(values.strip("[ ]").split()) == 9
    assert " ... " in values


def test_json_has_all_of_it(rgrun: Rgrun) -> None:
    command = "k.ptx --kernel sample::double --block 2x1 --arg slice:u32[2]=3 --arg two:slice:u32[2] --json --profile"
    code, out, err = rgrun(*command.split())
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    profile = found.pop("profile")
    assert found == {
        "kernel": "_RNvCs1234_6sample6double",
        "path": "sample::double",
        "grid": [1],
        "block": [2, 1],
        "output": "",
        "instructions": 2 * 16,
        "arrays": [
            {"number": 1, "name": "arg1", "type": "slice:u32[2]", "changed": False},
            {"number": 2, "name": "two", "type": "slice:u32[2]", "changed": True, "values": [6, 6]},
        ],
        "reports": [],
    }
    assert profile["threads"] == 2
    assert profile["total"]["instructions"] == 2 * 16
    assert (profile["total"]["global_requests"], profile["total"]["global_sectors"]) == (2, 2)


RACE = """\
rgrun: error: kernel racy: data race on shared cell+0: write and read by threads of the same block are not ordered \
[race]
>>> racy.rs:4: read of 4 bytes by thread (1, 0, 0) of block (0, 0, 0) (PTX line 63: ld.shared.u32)
>>>     4 | out[me()] = CELL.get();
>>> racy.rs:2: earlier write of 4 bytes by thread (0, 0, 0) of block (0, 0, 0) (PTX line 56: st.shared.u32)
>>>     2 | if me() == 0 { CELL.set(7); }
"""


def test_a_race_is_reported_with_both_lines(rgrun: Rgrun) -> None:
    command = ["k.ptx", "--kernel", "racy", "--block", "32", "--arg", "out:u32[32]", "--check", "race", "--arg"]
    assert rgrun(*command, "u32=1") == (0, f"arg1: u32[32] =\n  [{' '.join('7' * 32)}]\n", "")
    code, out, err = rgrun(*command, "u32=0")
    assert (code, out) == (1, "")
    assert err == RACE.replace("line 63", f"line {line_of('ld.shared.u32')}").replace(
        "line 56", f"line {line_of('st.shared.u32')}"
    )


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(Path("k.ptx").read_text().splitlines(), 1) if text in line)


def test_a_race_that_an_order_of_threads_shows_replays_by_its_seed(rgrun: Rgrun) -> None:
    command = ["k.ptx", "--kernel", "racy", "--block", "32", "--arg", "out:u32[32]", "--arg", "u32=0", "--seed", "3"]
    first, again = rgrun(*command), rgrun(*command)
    assert first == again
    assert first[0] == 1
    assert first[2].endswith("\n>>> help: --seed 3 shows it again\n")
    code, out, _ = rgrun(*command, "--json")
    found = json.loads(out)
    assert (code, found["seed"], found["reports"][0]["kind"]) == (1, 3, "race")
    assert {place["line"] for place in found["reports"][0]["places"]} <= {2, 4}


def test_checks_can_be_chosen(rgrun: Rgrun) -> None:
    command = ["k.ptx", "--kernel", "racy", "--block", "2", "--arg", "u:u32[2]", "--arg", "u32=0", "--check"]
    assert rgrun(*command, "none") == (0, "u: u32[2] =\n  [7 7]\n", "")
    assert rgrun(*command, "out-of-bounds,uninitialised-read")[0] == 0
    assert rgrun(*command, "uninitialised-read,race")[0] == 1


def test_an_output_holds_nothing_before_it_is_written(rgrun: Rgrun) -> None:
    command = "k.ptx --kernel saxpy --block 2 --arg f32[2]=ones --arg u64=2 --arg f32=1 --arg".split()
    command = [*command[:7], "--arg", "{}", *command[7:-1]]
    code, _, err = rgrun(*[word.replace("{}", "out:f32[2]") for word in command])
    assert code == 1
    assert err.startswith("rgrun: error: kernel saxpy: ")
    assert "[uninitialised-read]" in err.splitlines()[0]
    assert rgrun(*[word.replace("{}", "out:f32[2]=zeros") for word in command])[0] == 0


def test_the_kernels_are_listed(rgrun: Rgrun) -> None:
    assert rgrun("k.ptx", "--list") == (
        0,
        "sample::double(.b8[16], .b8[16])  _RNvCs1234_6sample6double\n"
        "hello()\nracy(.u64, .u32)\nsaxpy(.u64, .u64, .u64, .f32)\n",
        "",
    )


PROFILE = """\
x: u32[2] =
  [7 7]
instructions   28 by 2 threads, 14.0 each
active lanes   5.8% in 15 instructions of warps
shared memory  2 requests, 2 wavefronts, 0 bank conflicts
global memory  1 requests, 1 sectors, 1.00 for each request, 25.0% of their bytes used

per thread  active  shared  wavefronts  conflicts  global  sectors   used  place
      3.00    6.2%       -           -          -       -        -      -  PTX line 53
      1.00    3.1%       1        1.00          0       -        -      -  racy.rs:2    if me() == 0 { CELL.set(7); }
      4.00    6.2%       -           -          -       -        -      -  racy.rs:3    if safe != 0 { barrier(); }
      6.00    6.2%       1        1.00          0       1     1.00  25.0%  racy.rs:4    out[me()] = CELL.get();
"""


def test_the_profile_is_a_table_by_source_line(rgrun: Rgrun) -> None:
    command = "k.ptx --kernel racy --block 2 --arg x:u32[2] --arg u32=1 --profile".split()
    code, out, err = rgrun(*command)
    assert (code, err) == (0, "")
    assert out == PROFILE.replace("PTX line 53", f"PTX line {line_of('setp.ne.u32 %p0, %r0, 0;')}")


def test_a_trace_lists_what_ran(rgrun: Rgrun) -> None:
    command = "k.ptx --kernel racy --block 2 --arg x:u32[2] --arg u32=0 --trace t.txt".split()
    assert rgrun(*command)[0] == 1
    lines = Path("t.txt").read_text().splitlines()
    assert lines[0] == "# racy: blocks 0 to 0 of grid 1,1,1, block 2,1,1"
    assert "racy.rs:2  st.shared.u32  block 0,0,0 thread 0,0,0  store 0x0, 4 bytes" in lines
    assert "racy.rs:4  ld.shared.u32  2 threads from block 0,0,0 thread 0,0,0  load 0x0, 4 bytes" in lines
    assert lines[-1] == "# end  2 threads from block 0,0,0 thread 0,0,0"
