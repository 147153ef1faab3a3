"""A PTX machine on NumPy: runs linked kernels on the CPU, exact in values, without regard to cycles.

from rglink.emulate import load
program = load("app.fatbin")
program["saxpy"][grid, block](x, y, 3.0)

A launch raises `CheckFailed` where the checks have something to report; `load(path, checks=None)` is the bare machine.
"""

from __future__ import annotations

from rglink.emulate.checked import CheckedProgram
from rglink.emulate.checks import CheckFailed, Checks
from rglink.emulate.errors import KernelFault, LaunchError, PtxError, Unsupported
from rglink.emulate.launch import Launched, LoadedProgram
from rglink.emulate.loader import load

__all__ = [
    "CheckFailed",
    "CheckedProgram",
    "Checks",
    "KernelFault",
    "LaunchError",
    "Launched",
    "LoadedProgram",
    "PtxError",
    "Unsupported",
    "load",
]
