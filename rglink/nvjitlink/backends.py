"""Who runs code generation: the seam between a link and the machines it uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rglink.nvjitlink.job import CodegenJob, CodegenResult


class Backend(Protocol):
    """Runs jobs wherever it likes."""

    def run(self, jobs: Sequence[CodegenJob], parallel: int) -> list[CodegenResult]:
        """The results in the order of `jobs`, at most `parallel` of them worked on at once.

        Raises:
            ToolError: a tool failed, crashed, hung or took too much memory; the message names the job.
        """
        ...
