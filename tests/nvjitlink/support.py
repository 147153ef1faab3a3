"""Builds jobs from textual IR and runs them with the real tools."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from rglink.arch import parse_arch_list
from rglink.ir import Module
from rglink.nvjitlink.backends import LocalBackend
from rglink.nvjitlink.job import CodegenJob, CodegenResult, Debug, Route

LAYOUT = 'target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"\n'
HEAD = f'{LAYOUT}target triple = "nvptx64-nvidia-cuda"\n'
ROUTES: tuple[Route, ...] = ("llvm", "nvvm")


def jobs(
    ir: str,
    arches: str,
    route: Route,
    kernels: Sequence[str] = ("k",),
    variables: Sequence[str] = (),
    debug: Debug = "none",
) -> list[CodegenJob]:
    """One job per entry of `arches` ("sm_75,compute_90")."""
    bitcode = Module.parse_text(HEAD + ir, "test.ll").bitcode()
    return [
        CodegenJob("test", target, route, bitcode, tuple(kernels), tuple(variables), debug=debug)
        for target in parse_arch_list(arches)
    ]


def run(wanted: Sequence[CodegenJob]) -> list[CodegenResult]:
    return LocalBackend().run(wanted, 2)


def ptx(ir: str, arch: str, route: Route, debug: Debug = "none") -> str:
    """The PTX of one architecture ("90a")."""
    (result,) = run(jobs(ir, f"compute_{arch}", route, debug=debug))
    return result.image.decode()


def tool(name: Literal["cuobjdump", "nvdisasm"], *arguments: str | Path) -> str:
    """What a checker of NVIDIA's prints."""
    nvidia = pytest.importorskip("nvidia", reason="nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm are not installed")
    found = [path for root in nvidia.__path__ for path in Path(root).glob(f"cu*/bin/{name}")]
    if not found:
        pytest.skip(f"nvidia-cuda-{name} is not installed")
    done = subprocess.run([found[0], *arguments], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout
