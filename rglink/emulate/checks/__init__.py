"""Checks of a running kernel: wild, unwritten and racing accesses, barriers, asynchronous copies.

from rglink.emulate.checks import Checks, launch_checked
launch_checked(program["saxpy"], grid, block, (x, y, 3.0), Checks(schedules=4))
"""

from __future__ import annotations

from rglink.emulate.checks.checker import Checker
from rglink.emulate.checks.reports import ALL, CheckFailed, Place, Report
from rglink.emulate.checks.schedules import Checked, Checks, launch_checked

__all__ = ["ALL", "CheckFailed", "Checked", "Checker", "Checks", "Place", "Report", "launch_checked"]
