"""A loaded program whose launches are checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rglink.emulate.arguments import Argument
from rglink.emulate.checks import Checks, launch_checked
from rglink.emulate.launch import MOST_THREADS, STEP_BUDGET, WAVE_LANES, Extent, Kernel, Launched, LoadedProgram
from rglink.emulate.observer import Observer
from rglink.emulate.ptx import Program


class CheckedProgram(LoadedProgram):
    """As `LoadedProgram`; `program["saxpy"][grid, block](x, y)` raises `CheckFailed` where a check has something."""

    def __init__(self, program: Program, checks: Checks) -> None:
        super().__init__(program)
        self.checks = checks

    def __getitem__(self, name: str) -> CheckedKernel:
        """See `LoadedProgram`."""
        return CheckedKernel(self, super().__getitem__(name).image)


class CheckedKernel(Kernel):
    """One kernel of a checked program."""

    owner: CheckedProgram

    def launch(
        self,
        grid: Extent,
        block: Extent,
        args: Sequence[Argument],
        *,
        shared: int = 0,
        seed: int | None = None,
        observer: Observer | None = None,
        steps: int = STEP_BUDGET,
        wave_lanes: int = WAVE_LANES,
        most_threads: int = MOST_THREADS,
    ) -> Launched:
        """As `Kernel.launch`, checked unless an `observer` is given; `seed` takes the place of the checks' own.

        Raises:
            CheckFailed, KernelFault, LaunchError, PtxError: as `launch_checked` says.
        """
        if observer is not None:
            return super().launch(
                grid, block, args, shared=shared, seed=seed, observer=observer, steps=steps, wave_lanes=wave_lanes,
                most_threads=most_threads,
            )  # fmt: skip
        checks = self.owner.checks if seed is None else replace(self.owner.checks, seed=seed)
        return launch_checked(
            self, grid, block, args, checks, shared=shared, steps=steps, wave_lanes=wave_lanes,
            most_threads=most_threads,
        ).launched  # fmt: skip
