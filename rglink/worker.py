"""Supervised children: code that may crash, hang or eat memory runs in a forked process, and bytes come back.

LLVM and NVIDIA's libraries abort, segfault and loop on unlucky input. A child is forked (no import is paid twice),
leads a process group of its own, and has a time and a memory budget. Whatever ends it becomes a `ToolError` that
names its input; an `RglinkError` raised inside comes back as the same error. Only plain data crosses: JSON and
bytes. A child may run children itself.

The parent forks, so it must not have threads that hold locks, and the thread that runs tasks must outlive them
(prctl(2), PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import selectors
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import NoReturn

from rglink.diagnostics import (
    Diagnostic,
    Diagnostics,
    InputError,
    LinkFailed,
    RglinkError,
    ToolError,
    UsageError,
)

DEFAULT_SECONDS = 600.0
DEFAULT_MEMORY = 8 * 1024  # MiB
_OUTPUT_LIMIT = 64 << 20  # bytes that a child may print
_SHOWN_LINES = 8  # of a dead child's output
_POLL = 0.05  # seconds between looks at memory
_PR_SET_PDEATHSIG = 1  # prctl(2)
_HEADER = struct.Struct("<I")  # length of the JSON that precedes the payload
_PAGE = resource.getpagesize()

CRASHED, TIMED_OUT, OUT_OF_MEMORY = "tool-crashed", "tool-timeout", "tool-memory"

_ERRORS: dict[str, type[RglinkError]] = {
    kind.__name__: kind for kind in (RglinkError, InputError, UsageError, ToolError)
}
_in_child: list[bool] = []


class BugInChild(AssertionError):
    """An exception that is no `RglinkError` ended a child: a bug of ours. The message is the child's traceback."""


@dataclass(frozen=True)
class Task:
    """Work for one child. `what` names it and its input in errors ("app.fatbin for sm_90").

    `seconds` and `memory` (MiB of resident memory) are budgets, None for the defaults. What the child adds to
    `diags` arrives in the parent's. `retry` is asked after a `ToolError` for a task to run instead, None for no.
    """

    what: str
    run: Callable[[], bytes]
    seconds: float | None = None
    memory: int | None = None
    diags: Diagnostics | None = None
    retry: Callable[[ToolError], Task | None] | None = None


def run_supervised(
    what: str,
    fn: Callable[[], bytes],
    *,
    seconds: float | None = None,
    memory: int | None = None,
    diags: Diagnostics | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> bytes:
    """Run `fn` in a child and return its bytes; `meanwhile` runs here once the child has started.

    Raises:
        RglinkError, LinkFailed: what the child raised.
        ToolError: the child died, took too long or too much memory.
        BugInChild: the child raised anything else.
        UsageError: `RGLINK_TIME_LIMIT` or `RGLINK_MEMORY_LIMIT` is not a number.
    """
    return run_parallel([Task(what, fn, seconds, memory, diags)], 1, meanwhile=meanwhile)[0]


def run_parallel(tasks: Sequence[Task], jobs: int, *, meanwhile: Callable[[], None] | None = None) -> list[bytes]:
    """Run tasks, at most `jobs` at once, and return their bytes in order.

    When some fail, the error of the first of them in order is raised, so that it does not depend on timing.

    Raises:
        As `run_supervised`.
    """
    seconds, memory = budgets()
    run = _Run(list(tasks), max(1, jobs), seconds, memory)
    try:
        run.fill()
        if meanwhile is not None:
            meanwhile()
        return run.finish()
    finally:
        run.stop_all()


def budgets() -> tuple[float, int]:
    """Default time (seconds) and memory (MiB) of a child: `RGLINK_TIME_LIMIT`, `RGLINK_MEMORY_LIMIT` or ours.

    Raises:
        UsageError: a variable is not a positive number.
    """
    return _number("RGLINK_TIME_LIMIT", DEFAULT_SECONDS), int(_number("RGLINK_MEMORY_LIMIT", DEFAULT_MEMORY))


def _number(variable: str, default: float) -> float:
    text = os.environ.get(variable, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UsageError(f"{variable}: {text!r} is not a positive number")
    return value


def captured_output() -> str:
    """What this child has printed so far on fds 1 and 2, foreign libraries included; "" outside a child."""
    return _read_output(2) if _in_child else ""


@dataclass
class _Child:
    index: int
    task: Task
    pid: int
    pidfd: int
    pipe: int
    output: int
    started: float
    seconds: float
    memory: int
    answer: bytearray = field(default_factory=bytearray)
    killed_for: tuple[str, str, str] | None = None  # slug, how it ended, cure


class _Run:
    """One call of `run_parallel`: which tasks wait, which run, and what came of the others."""

    def __init__(self, tasks: list[Task], jobs: int, seconds: float, memory: int) -> None:
        self._tasks = tasks
        self._jobs = jobs
        self._seconds = seconds
        self._memory = memory
        self._next = 0
        self._running: dict[int, _Child] = {}
        self._results: dict[int, bytes] = {}
        self._said: dict[int, list[Diagnostic]] = {}
        self._failures: dict[int, Exception] = {}
        self._selector = selectors.DefaultSelector()

    def fill(self) -> None:
        """Start waiting tasks while there is room; none after a failure."""
        while self._next < len(self._tasks) and len(self._running) < self._jobs and not self._failures:
            self._start(self._next, self._tasks[self._next])
            self._next += 1

    def finish(self) -> list[bytes]:
        """Wait for all and give what they made, or raise the first failure in order."""
        while self._running:
            self._wait()
            self.fill()
        failed = min(self._failures, default=len(self._tasks))
        for index in sorted(self._said):
            diags = self._tasks[index].diags
            if diags is not None and index <= failed:
                diags.extend(self._said[index])
        if self._failures:
            raise self._failures[failed]
        return [self._results[index] for index in range(len(self._tasks))]

    def stop_all(self) -> None:
        """Kill what still runs; neither zombies nor open files stay."""
        for child in list(self._running.values()):
            self._stop(child)
            os.close(child.output)
        self._selector.close()

    def _start(self, index: int, task: Task) -> None:
        seconds = self._seconds if task.seconds is None else task.seconds
        memory = self._memory if task.memory is None else task.memory
        read_end, write_end = os.pipe()
        output = os.memfd_create("output")
        # Between fork and the entry into `_running` an interrupt would leave a child nobody knows of.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            pid = _fork(task, read_end, write_end, output, mask)
            os.close(write_end)
            os.set_blocking(read_end, False)
            pidfd = os.pidfd_open(pid)
            child = _Child(index, task, pid, pidfd, read_end, output, time.monotonic(), seconds, memory)
            self._running[pid] = child
            self._selector.register(read_end, selectors.EVENT_READ, child)
            self._selector.register(pidfd, selectors.EVENT_READ, child)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _wait(self) -> None:
        """Sleep until something happens, then take in answers, ends, and budgets overrun."""
        for key, _ in self._selector.select(_POLL):
            child: _Child = key.data
            if child.pid not in self._running:
                continue
            if key.fd == child.pidfd:
                self._settle(child)
            elif _drain(child):
                self._selector.unregister(child.pipe)
        for child in list(self._running.values()):
            child.killed_for = _over_budget(child)
            if child.killed_for is not None:
                self._settle(child)

    def _settle(self, child: _Child) -> None:
        """Take a child's answer, or the reason for its end."""
        status = self._stop(child)
        try:
            self._results[child.index] = self._answer(child, status)
        except ToolError as error:
            again = child.task.retry(error) if child.task.retry is not None else None
            if again is None:
                self._fail(child.index, error)
            else:
                self._start(child.index, again)
        except (RglinkError, LinkFailed, BugInChild) as error:
            self._fail(child.index, error)
        finally:
            os.close(child.output)

    def _answer(self, child: _Child, status: int) -> bytes:
        if child.killed_for is not None or status != 0 or not child.answer:
            raise _death(child, status)
        begin = _HEADER.size
        (length,) = _HEADER.unpack_from(child.answer)
        header = json.loads(child.answer[begin : begin + length])
        self._said[child.index] = [_diagnostic(item) for item in header["said"]]
        if header["kind"] == LinkFailed.__name__:
            raise LinkFailed
        if header["kind"] == BugInChild.__name__:
            raise BugInChild(f"{child.task.what}: {header['text']}")
        if header["kind"] is not None:
            raise _rebuilt(header["kind"], _diagnostic(header["error"]))
        return bytes(memoryview(child.answer)[begin + length :])

    def _fail(self, index: int, error: Exception) -> None:
        self._failures[index] = error
        for other in list(self._running.values()):
            if other.index > index:
                self._stop(other)
                os.close(other.output)

    def _stop(self, child: _Child) -> int:
        """Kill the group, reap its leader and take what is left in the pipe; returns the exit status."""
        del self._running[child.pid]
        # Before the leader is reaped its number cannot belong to anybody else.
        _kill_group(child.pid)
        status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        _drain(child)
        for fd in (child.pipe, child.pidfd):
            if fd in self._selector.get_map():
                self._selector.unregister(fd)
            os.close(fd)
        return status


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(pid, signal.SIGKILL)  # it has not reached setpgid yet


def _drain(child: _Child) -> bool:
    """Read what the pipe holds; whether its end was reached."""
    while True:
        try:
            piece = os.read(child.pipe, 1 << 20)
        except BlockingIOError:
            return False
        if not piece:
            return True
        child.answer += piece


def _over_budget(child: _Child) -> tuple[str, str, str] | None:
    if time.monotonic() - child.started > child.seconds:
        return TIMED_OUT, f"took more than {child.seconds:g} s", "RGLINK_TIME_LIMIT=SECONDS allows more"
    if os.fstat(child.output).st_size > _OUTPUT_LIMIT:
        return CRASHED, f"printed more than {_OUTPUT_LIMIT >> 20} MiB", "report this with the input"
    if _resident(child.pid) > child.memory << 20:
        return OUT_OF_MEMORY, f"took more than {child.memory} MiB of memory", "RGLINK_MEMORY_LIMIT=MIB allows more"
    return None


def _resident(pid: int) -> int:
    """Resident memory in bytes (proc(5), statm). Address space says nothing: CUDA's libraries reserve gigabytes."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _death(child: _Child, status: int) -> ToolError:
    slug, ended, cure = child.killed_for or (CRASHED, _ending(status), None)
    lines = [line.rstrip() for line in _read_output(child.output).splitlines() if line.strip()]
    return ToolError(f"{child.task.what}: {ended}", *lines[-_SHOWN_LINES:], slug=slug, cure=cure)


def _ending(status: int) -> str:
    if status == 0:
        return "ended without an answer"
    if status > 0:
        return f"ended with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name}" + (", perhaps for lack of memory" if name == "SIGKILL" else "")


def _read_output(fd: int) -> str:
    size = os.fstat(fd).st_size
    start = max(0, size - (256 << 10))
    return os.pread(fd, size - start, start).decode("utf-8", "replace")


def _diagnostic(item: dict[str, object]) -> Diagnostic:
    level, places, cure = item["level"], item["places"], item["cure"]
    assert level in ("error", "warning", "note")
    assert isinstance(places, list)
    return Diagnostic(
        level,
        str(item["slug"]),
        str(item["message"]),
        tuple(str(place) for place in places),
        None if cure is None else str(cure),
    )


def _rebuilt(kind: str, said: Diagnostic) -> RglinkError:
    return _ERRORS[kind](said.message, *said.places, slug=said.slug, cure=said.cure)


def _fork(task: Task, read_end: int, write_end: int, output: int, mask: set[int]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by whoever started us
            stream.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read_end)
            _enter_child(output, parent, mask)
            _send(write_end, task)
        finally:
            os._exit(70)  # only where the child's own set-up failed
    return pid


def _enter_child(output: int, parent: int, mask: set[int]) -> None:
    """Give the process its group, its fate bound to the parent's, and fds 0 to 2 of its own."""
    os.setpgid(0, 0)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(70)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if "faulthandler" in sys.modules:
        sys.modules["faulthandler"].disable()
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    sys.stdout = sys.stderr = open(2, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    _in_child[:] = [True]


def _send(pipe: int, task: Task) -> NoReturn:
    """Run the task and write header and payload, then end without Python's or a library's exit handlers."""
    known = len(task.diags.items) if task.diags is not None else 0
    header: dict[str, object] = {"kind": None}
    payload = b""
    try:
        payload = task.run()
    except RglinkError as error:
        kind = next(base.__name__ for base in type(error).__mro__ if base.__name__ in _ERRORS)
        header = {"kind": kind, "error": asdict(error.diagnostic)}
    except LinkFailed:
        header = {"kind": LinkFailed.__name__}
    except MemoryError:
        header = {"kind": ToolError.__name__, "error": asdict(_no_memory(task.what))}
    except Exception:
        header = {"kind": BugInChild.__name__, "text": traceback.format_exc().rstrip()}
    except SystemExit as error:
        os._exit(error.code if isinstance(error.code, int) else 1)
    items = task.diags.items[known:] if task.diags is not None else []
    encoded = json.dumps(header | {"said": [asdict(item) for item in items]}).encode()
    sys.stdout.flush()
    with open(pipe, "wb") as file:
        file.write(_HEADER.pack(len(encoded)) + encoded)
        file.write(payload)
    os._exit(0)


def _no_memory(what: str) -> Diagnostic:
    return Diagnostic("error", OUT_OF_MEMORY, f"{what}: ran out of memory")
