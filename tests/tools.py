"""Running the installed commands and NVIDIA's checkers as a user would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from rglink.diagnostics import ToolError
from rglink.frontend.rustc import Rustc, find_rustc
from rglink.ir import LLVM_MAJOR

SCRIPTS = Path(sys.executable).parent
NVIDIA_BIN = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin"


def tool(name: str) -> str:
    """The path of one of our commands, or of a checker of NVIDIA's that the test set-up installs."""
    ours = SCRIPTS / name
    if ours.exists():
        return str(ours)
    if (NVIDIA_BIN / name).exists():
        return str(NVIDIA_BIN / name)
    found = shutil.which(name)
    assert found is not None, f"{name} is not installed; the dev extra brings it"
    return found


def run(
    argv: Sequence[str], folder: Path, env: Mapping[str, str] | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with its output captured as text."""
    command = [tool(argv[0]), *argv[1:]]
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        errors="surrogateescape",
        stdin=subprocess.DEVNULL,
        timeout=timeout,
        check=False,
    )


def require_rustc() -> Rustc:
    """The rustc that rgcc would use; without one the test is skipped with what is missing."""
    try:
        return find_rustc(LLVM_MAJOR)
    except ToolError as error:
        pytest.skip(error.diagnostic.render())
