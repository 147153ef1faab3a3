"""A PTX machine on NumPy: runs linked kernels on the CPU, exact in values, without regard to cycles.

from rglink.emulate import load
program = load("app.fatbin")
program["saxpy"][grid, block](x, y, 3.0)
"""

from __future__ import annotations

from rglink.emulate.errors import KernelFault, LaunchError, PtxError, Unsupported
from rglink.emulate.launch import Launched, LoadedProgram
from rglink.emulate.loader import load

__all__ = ["KernelFault", "LaunchError", "Launched", "LoadedProgram", "PtxError", "Unsupported", "load"]
