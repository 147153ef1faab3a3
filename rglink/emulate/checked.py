"""A loaded program whose launches are checked."""

from __future__ import annotations

from dataclasses import dataclass

from rglink.emulate.arguments import Argument
from rglink.emulate.checks import Checks, launch_checked
from rglink.emulate.launch import Configured, Extent, Kernel, Launched, LoadedProgram
from rglink.emulate.ptx import Program


class CheckedProgram(LoadedProgram):
    """As `LoadedProgram`; `program["saxpy"][grid, block](x, y)` raises `CheckFailed` where a check has something."""

    def __init__(self, program: Program, checks: Checks) -> None:
        super().__init__(program)
        self.checks = checks

    def __getitem__(self, name: str) -> CheckedKernel:
        """The kernel `name`.

        Raises:
            LaunchError: there is none.
        """
        return CheckedKernel(self, super().__getitem__(name).image)


class CheckedKernel(Kernel):
    """One kernel of a checked program. `launch` runs it unchecked."""

    owner: CheckedProgram

    def __getitem__(self, shape: tuple[Extent, Extent]) -> CheckedConfigured:
        """`kernel[grid, block]`, each a number or up to three of them."""
        return CheckedConfigured(self, *shape)


@dataclass(frozen=True)
class CheckedConfigured(Configured):
    """A kernel with its grid and block, checked when it is called."""

    kernel: CheckedKernel

    def __call__(self, *args: Argument) -> Launched:
        """Run it; arrays are read and written in place.

        Raises:
            CheckFailed, KernelFault, LaunchError, PtxError: as `launch_checked` says.
        """
        return launch_checked(self.kernel, self.grid, self.block, args, self.kernel.owner.checks).launched
