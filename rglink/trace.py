"""Watching a link: phase times, saved temporaries, and a note of what is being worked on.

The note lives in memory shared with the supervising parent, so that a crash inside a library can be told with the
name of the input it happened on.
"""

from __future__ import annotations

import json
import mmap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_NOTE_BYTES = 4096


class Stopped(Exception):
    """`--stop-after PHASE` was reached."""


@dataclass(frozen=True)
class PhaseTime:
    """Seconds since the trace began, and how long the phase took."""

    name: str
    start: float
    seconds: float


class Trace:
    """One link's times and temporaries. `output` is the path whose name temporaries extend."""

    def __init__(self, output: str = "", save_temps: tuple[str, ...] = (), stop_after: str = "") -> None:
        self._note = mmap.mmap(-1, _NOTE_BYTES)
        self._output = output
        self._save_temps = save_temps
        self._stop_after = stop_after
        self._began = time.perf_counter()
        self._number = 0
        self.times: list[PhaseTime] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time one phase and note its name."""
        self.note(name)
        start = time.perf_counter()
        yield
        now = time.perf_counter()
        self.times.append(PhaseTime(name, start - self._began, now - start))

    def note(self, what: str) -> None:
        """Remember what is being worked on, for the message when the worker dies."""
        data = what.encode("utf-8", "replace")[: _NOTE_BYTES - 1]
        self._note.seek(0)
        self._note.write(data.ljust(_NOTE_BYTES, b"\0"))

    def last_note(self) -> str:
        """What was noted last, by this process or a child."""
        self._note.seek(0)
        return self._note.read(_NOTE_BYTES).rstrip(b"\0").decode("utf-8", "replace")

    def save(self, phase: str, text: Callable[[], str]) -> None:
        """Write `OUT.<number>.<phase>.ll` if asked for; stop here if `--stop-after` says so.

        Raises:
            Stopped: this was the last phase wanted.
        """
        self._number += 1
        if phase in self._save_temps or (phase == self._stop_after and not self._save_temps):
            Path(f"{self._output}.{self._number}.{phase}.ll").write_text(text(), "utf-8", "surrogateescape")
        if phase == self._stop_after:
            raise Stopped(phase)

    def render(self) -> str:
        """The table of `--time-phases`."""
        total = sum(phase.seconds for phase in self.times) or 1.0
        lines = [f"{'phase':<12} {'ms':>9} {'share':>6}"]
        lines += [f"{p.name:<12} {p.seconds * 1e3:>9.1f} {p.seconds / total:>6.0%}" for p in self.times]
        return "\n".join([*lines, f"{'total':<12} {total * 1e3:>9.1f}"])

    def chrome_trace(self) -> str:
        """Chrome's trace event format (JSON array form), times in microseconds."""
        events = [
            {"name": p.name, "ph": "X", "ts": round(p.start * 1e6), "dur": round(p.seconds * 1e6), "pid": 1, "tid": 1}
            for p in self.times
        ]
        return json.dumps(events, indent=1) + "\n"
