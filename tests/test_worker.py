"""Children end in every way a foreign library can end them; the parent says so and keeps nothing of them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rglink import worker
from rglink.diagnostics import Diagnostics, InputError, LinkFailed, RglinkError, ToolError, UsageError
from rglink.worker import BugInChild, Task, run_parallel, run_supervised


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


@pytest.fixture(autouse=True)
def nothing_stays() -> object:
    files, children = _open_files(), _children()
    yield
    assert _open_files() == files
    assert _children() == children


def test_bytes_come_back_whole() -> None:
    data = os.urandom(5 << 20)
    assert run_supervised("a", lambda: data) == data
    assert run_supervised("a", lambda: b"") == b""


def test_results_keep_the_order_of_the_tasks() -> None:
    def work(delay: float, answer: bytes) -> Callable[[], bytes]:
        def run() -> bytes:
            time.sleep(delay)
            return answer

        return run

    tasks = [Task(str(i), work(0.1 * (3 - i), b"%d" % i)) for i in range(4)]
    assert run_parallel(tasks, 4) == [b"0", b"1", b"2", b"3"]


def test_no_more_than_jobs_run_at_once(tmp_path: Path) -> None:
    def work() -> bytes:
        mine = tmp_path / str(os.getpid())
        mine.touch()
        time.sleep(0.05)
        count = len(list(tmp_path.iterdir()))
        mine.unlink()
        return b"%d" % count

    assert max(int(n) for n in run_parallel([Task("t", work) for _ in range(6)], 2)) == 2


@pytest.mark.parametrize(
    "error",
    [
        InputError("a.rgo: truncated", "offset 10", slug="bad-input", cure="make it again"),
        UsageError("--arch: empty"),
        ToolError("ptxas: no", slug="tool-failed"),
        RglinkError("plain", slug="odd"),
    ],
)
def test_an_error_of_ours_is_raised_again(error: RglinkError) -> None:
    def work() -> bytes:
        raise error

    with pytest.raises(RglinkError) as caught:
        run_supervised("a", work)
    assert type(caught.value) is type(error)
    assert caught.value.diagnostic == error.diagnostic
    assert caught.value.exit_code == error.exit_code


def test_diagnostics_travel_with_success_and_failure() -> None:
    diags = Diagnostics()
    diags.note("before", "known here")

    def work() -> bytes:
        diags.error("undefined-symbol", "undefined symbol: f", "a.rgo", cure="define it")
        diags.checkpoint()
        return b""

    with pytest.raises(LinkFailed):
        run_supervised("a", work, diags=diags)
    assert [item.slug for item in diags.items] == ["before", "undefined-symbol"]
    assert diags.items[1].places == ("a.rgo",)
    assert diags.items[1].cure == "define it"


def test_diagnostics_of_parallel_tasks_come_in_their_order() -> None:
    diags = Diagnostics()

    def work(name: str, delay: float) -> Callable[[], bytes]:
        def run() -> bytes:
            time.sleep(delay)
            diags.warn("w", name)
            return b""

        return run

    run_parallel([Task(n, work(n, d), diags=diags) for n, d in (("a", 0.2), ("b", 0.0))], 2)
    assert [item.message for item in diags.items] == ["a", "b"]


def test_a_signal_is_named_with_the_last_output() -> None:
    def work() -> bytes:
        os.write(2, b"first line\nLLVM ERROR: Cannot select\n")
        os.kill(os.getpid(), signal.SIGSEGV)
        return b""

    with pytest.raises(ToolError) as caught:
        run_supervised("app.fatbin for sm_90", work)
    said = caught.value.diagnostic
    assert said.message == "app.fatbin for sm_90: was killed by SIGSEGV"
    assert said.places == ("first line", "LLVM ERROR: Cannot select")
    assert said.slug == worker.CRASHED


def test_a_null_read_in_foreign_code_is_a_crash() -> None:
    def work() -> bytes:
        return ctypes.string_at(0)

    with pytest.raises(ToolError, match="x: was killed by SIGSEGV"):
        run_supervised("x", work)


def test_an_exit_of_a_library_is_an_error() -> None:
    def work() -> bytes:
        ctypes.CDLL(None).exit(3)
        return b""

    with pytest.raises(ToolError, match="x: ended with exit code 3"):
        run_supervised("x", work)


def test_an_early_clean_exit_is_an_error() -> None:
    def work() -> bytes:
        os._exit(0)

    with pytest.raises(ToolError, match="x: ended without an answer"):
        run_supervised("x", work)


def test_a_hang_ends_with_its_whole_group(tmp_path: Path) -> None:
    note = tmp_path / "pid"

    def work() -> bytes:
        sleeper = subprocess.Popen(["sleep", "60"])
        note.write_text(str(sleeper.pid))
        time.sleep(60)
        return b""

    with pytest.raises(ToolError, match=r"x: took more than 0\.5 s") as caught:
        run_supervised("x", work, seconds=0.5)
    assert caught.value.diagnostic.slug == worker.TIMED_OUT
    assert _gone(int(note.read_text()))


def _gone(pid: int) -> bool:
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_memory_is_watched() -> None:
    def work() -> bytes:
        grown = bytearray(400 << 20)
        time.sleep(5)
        return bytes(grown[:1])

    with pytest.raises(ToolError, match="x: took more than 200 MiB of memory") as caught:
        run_supervised("x", work, memory=200)
    assert caught.value.diagnostic.slug == worker.OUT_OF_MEMORY


def test_reserved_address_space_is_no_memory() -> None:
    def work() -> bytes:
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap(None, ctypes.c_size_t(1 << 36), 0, 0x4022, -1, 0)  # PROT_NONE, MAP_NORESERVE
        time.sleep(0.2)
        return b"ok"

    assert run_supervised("x", work, memory=500) == b"ok"


def _sleep_long() -> bytes:
    time.sleep(30)
    return b""


def test_budgets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RGLINK_TIME_LIMIT", "0.3")
    with pytest.raises(ToolError, match=r"took more than 0\.3 s"):
        run_supervised("x", _sleep_long)
    monkeypatch.setenv("RGLINK_TIME_LIMIT", "soon")
    with pytest.raises(UsageError, match="RGLINK_TIME_LIMIT: 'soon' is not a positive number"):
        run_supervised("x", lambda: b"")


def test_our_own_bug_stays_a_bug() -> None:
    def work() -> bytes:
        raise ValueError("no such item")

    with pytest.raises(BugInChild, match="ValueError: no such item"):
        run_supervised("x", work)


def test_children_run_children() -> None:
    def inner() -> bytes:
        os.write(1, b"deep\n")
        os.abort()

    def outer() -> bytes:
        assert run_supervised("fine", lambda: b"1") == b"1"
        return run_supervised("inner", inner)

    with pytest.raises(ToolError, match="inner: was killed by SIGABRT") as caught:
        run_supervised("outer", outer)
    assert caught.value.diagnostic.places == ("deep",)


def test_the_first_failing_task_in_order_is_reported() -> None:
    def fail(name: str, delay: float) -> Callable[[], bytes]:
        def run() -> bytes:
            time.sleep(delay)
            raise InputError(name)

        return run

    tasks = [Task("a", lambda: b""), Task("b", fail("b", 0.3)), Task("c", fail("c", 0.0)), Task("d", lambda: b"")]
    with pytest.raises(InputError, match="b"):
        run_parallel(tasks, 3)


def test_a_task_may_be_tried_again_in_another_way() -> None:
    def crash() -> bytes:
        os.abort()

    def second(error: ToolError) -> Task:
        assert error.diagnostic.slug == worker.CRASHED
        return Task("second", lambda: b"2")

    assert run_parallel([Task("first", crash, retry=second)], 1) == [b"2"]


def test_what_a_child_printed_can_be_read_in_it() -> None:
    def work() -> bytes:
        os.write(2, b"from a library\n")
        print("from Python", flush=True)
        return worker.captured_output().encode()

    assert run_supervised("x", work) == b"from a library\nfrom Python\n"
    assert worker.captured_output() == ""


def test_meanwhile_runs_beside_the_child() -> None:
    seen: list[int] = []
    start = time.monotonic()

    def meanwhile() -> None:
        time.sleep(0.3)
        seen.append(1)

    def work() -> bytes:
        time.sleep(0.3)
        return b""

    run_supervised("x", work, meanwhile=meanwhile)
    assert seen == [1]
    assert time.monotonic() - start < 0.5


_PROGRAM = """
import os, sys, time
from rglink.worker import Task, run_parallel, run_supervised
def inner():
    print(os.getpid(), file=open(sys.argv[1] + str(os.getpid()), "w"))
    time.sleep(60)
    return b""
run_parallel([Task("a", inner), Task("b", lambda: run_supervised("c", inner))], 2)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_children_die_with_their_parent(tmp_path: Path, how: signal.Signals) -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PROGRAM, f"{tmp_path}/"], stderr=subprocess.DEVNULL)
    for _ in range(200):
        if len(list(tmp_path.iterdir())) == 2:
            break
        time.sleep(0.02)
    pids = [int(note.name) for note in tmp_path.iterdir()]
    assert len(pids) == 2
    parent.send_signal(how)
    parent.wait(10)
    assert all(_gone(pid) for pid in pids)
