"""PTX of LLVM's back end in a child process, which may abort, and what ptxas says to it."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest

from rglink.ir import Module
from rglink.worker import run_supervised


def emit(ir: str, cpu: str, features: str = "") -> str:
    """PTX for `cpu` at -O3 of the back end.

    Raises:
        ToolError: LLVM died on it.
    """

    def work() -> bytes:
        module = Module.parse_text(ir, "test")
        module.verify()
        return module.emit_ptx(cpu, features, 3).encode()

    return run_supervised("emitting PTX", work).decode()


def tools() -> Path:
    """The folder with ptxas and nvdisasm."""
    nvidia = pytest.importorskip("nvidia", reason="nvidia-cuda-nvcc is not installed")
    found = [path.parent for root in nvidia.__path__ for path in Path(root).glob("cu*/bin/ptxas")]
    if not found:
        pytest.skip("nvidia-cuda-nvcc (ptxas) is not installed")
    return found[0]


def assemble(ir: str, cpu: str, features: str = "", cubin: Path | None = None) -> str:
    """The PTX, after ptxas has taken it (and written `cubin`)."""
    ptx = emit(ir, cpu, features)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "k.ptx")
        source.write_text(ptx)
        command = [str(tools() / "ptxas"), f"-arch={cpu}", str(source), "-o", str(cubin or Path(folder, "k.cubin"))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{done.stderr}\n{ptx}"
    return ptx
