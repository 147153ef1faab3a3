"""Launches with checks, under several schedules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rglink.emulate.arguments import Argument
from rglink.emulate.checks.checker import Checker
from rglink.emulate.checks.order import THREAD_MASK as MOST_NUMBERED
from rglink.emulate.checks.reports import ALL, CheckFailed, Report, report_of_fault
from rglink.emulate.errors import KernelFault, LaunchError
from rglink.emulate.launch import MOST_THREADS, STEP_BUDGET, WAVE_LANES, Extent, Kernel, Launched
from rglink.emulate.wave import Wave

Arrays = list[tuple[NDArray[Any], NDArray[Any]]]


@dataclass(frozen=True)
class Checked:
    """A launch without errors: `reports` are notes."""

    launched: Launched
    reports: tuple[Report, ...]


@dataclass(frozen=True)
class Checks:
    """What to check (`kinds` of `ALL`), in how many launches; the first is in the default order or by `seed`.

    `outputs` are the numbers (from 0) of array arguments that hold nothing before the kernel writes them.
    """

    kinds: frozenset[str] = ALL
    seed: int | None = None
    schedules: int = 1
    outputs: frozenset[int] = field(default_factory=frozenset)


class _Tracking(Checker):
    """A checker that finds the output arguments in the parameters of the first wave."""

    def __init__(self, kernel: Kernel, threads: int, checks: Checks, args: Sequence[Argument]) -> None:
        super().__init__(kernel.image, threads, checks.kinds)
        self._args, self._numbers = args, checks.outputs
        self._offsets = list(kernel.image.parameters.values())

    def on_wave(self, wave: Wave) -> None:
        """See `Observer`."""
        if not self.outputs:
            self.outputs = tuple(self._range(number, wave.parameters) for number in sorted(self._numbers))
        super().on_wave(wave)

    def _range(self, number: int, parameters: bytes) -> tuple[int, int]:
        argument = self._args[number]
        array = argument[0] if isinstance(argument, tuple) else argument
        if not isinstance(array, np.ndarray):
            raise LaunchError(f"argument {number + 1} is to be an output, but is no array")
        start = self._offsets[number]
        return int.from_bytes(parameters[start : start + 8], "little"), array.nbytes


def launch_checked(
    kernel: Kernel,
    grid: Extent,
    block: Extent,
    args: Sequence[Argument],
    checks: Checks | None = None,
    *,
    shared: int = 0,
    steps: int = STEP_BUDGET,
    wave_lanes: int = WAVE_LANES,
    most_threads: int = MOST_THREADS,
) -> Checked:
    """Launch `kernel` under one schedule or several; arrays keep what the first one wrote.

    At most `most_threads` threads, which the checks number: never more than 2**29 - 1.

    Raises:
        CheckFailed: a schedule showed an error; it names the seed.
        KernelFault: a trap, a failed assertion or another fault that no check is about.
        LaunchError: arguments, grid, block or checks do not fit.
    """
    checks = checks or Checks()
    _refuse_unknown(checks.kinds)
    memory = _Memory(kernel, args) if checks.schedules > 1 else None
    most_threads = min(most_threads, MOST_NUMBERED)
    options = {"shared": shared, "steps": steps, "wave_lanes": wave_lanes, "most_threads": most_threads}
    first: Launched | None = None
    notes: list[Report] = []
    for seed in _seeds(checks):
        if memory is not None:
            memory.restore()
        done, reports = _launch_once(kernel, (grid, block), args, checks, seed, options)
        notes += [report for report in reports if report not in notes]
        if memory is not None:
            notes += memory.compare(seed, kernel.function.name, first is None, notes)
        first = first or done
    if memory is not None:
        memory.bring_back()
    assert first is not None
    return Checked(first, tuple(notes))


def _refuse_unknown(kinds: frozenset[str]) -> None:
    unknown = kinds - ALL
    if unknown:
        raise LaunchError(f"no check is called {', '.join(sorted(unknown))}; there are {', '.join(sorted(ALL))}")


def _launch_once(
    kernel: Kernel,
    shape: tuple[Extent, Extent],
    args: Sequence[Argument],
    checks: Checks,
    seed: int | None,
    options: Mapping[str, int],
) -> tuple[Launched, list[Report]]:
    """One schedule; the reports are notes."""
    block = shape[1]
    threads = math.prod((block,) if isinstance(block, int) else tuple(block))
    checker = _Tracking(kernel, threads, checks, args)
    found = checker.findings.reports
    try:
        done = kernel.launch(*shape, args, seed=seed, observer=checker, **options)
    except KernelFault as fault:
        report = report_of_fault(fault)
        if report is None or report.kind not in checks.kinds:
            raise
        raise CheckFailed([*found, report], seed, fault.output) from None
    if any(report.level == "error" for report in found):
        raise CheckFailed(found, seed, done.output)
    return done, found


def _seeds(checks: Checks) -> Iterable[int | None]:
    if checks.schedules < 1:
        raise LaunchError(f"{checks.schedules} schedules, wanted 1 or more")
    start = 0 if checks.seed is None else checks.seed + 1
    return [checks.seed, *range(start, start + checks.schedules - 1)]


class _Memory:
    """What a launch begins with, so that the next one begins with the same; and what the first one made of it."""

    def __init__(self, kernel: Kernel, args: Sequence[Argument]) -> None:
        arrays: list[NDArray[Any]] = []
        for argument in args:
            items = argument if isinstance(argument, tuple) else (argument,)
            arrays += [item for item in items if isinstance(item, np.ndarray) and item.flags.writeable]
        self.before: Arrays = [(array, array.copy()) for array in arrays]
        self.after: Arrays = []
        self.arena = kernel.owner.arena
        self.variables = self.arena.bytes[: self.arena.used].copy()
        self.allocations = len(self.arena.allocations)

    def restore(self) -> None:
        """Put everything back as it was before the first launch."""
        for array, copy in self.before:
            array[...] = copy
        self.arena.release_from(self.allocations)
        self.arena.bytes[: len(self.variables)] = self.variables

    def compare(self, seed: int | None, kernel: str, first: bool, known: Sequence[Report]) -> list[Report]:
        """Keep the results of the first launch; a note if those of a later one differ."""
        if first:
            self.after = [(array, array.copy()) for array, _ in self.before]
            return []
        same = all(array.tobytes() == copy.tobytes() for array, copy in self.after)
        if same or any(report.kind == "schedule-dependent" for report in known):
            return []
        return [Report("schedule-dependent", f"schedule seed {seed} leaves other results than the first", (), kernel)]

    def bring_back(self) -> None:
        """Give the arrays the results of the first launch."""
        for array, copy in self.after:
            array[...] = copy
