"""Small kernels for these tests: every one is also assembled by ptxas, so that the machine is fed valid PTX alone."""

from __future__ import annotations

import subprocess
import sysconfig
from functools import cache
from pathlib import Path

import pytest

from rglink.emulate import LoadedProgram, load

PTXAS = Path(sysconfig.get_path("purelib")) / "nvidia/cu13/bin/ptxas"
REGISTERS = """
.reg .pred %p<16>; .reg .b16 %h<16>; .reg .b32 %r<32>; .reg .f32 %f<16>; .reg .b64 %rd<32>; .reg .f64 %fd<16>;
"""
# What most kernels begin with: %r0 is the thread in the grid, %rd0 the address of its word in `out`.
PLACE = """
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r0, %r1, %r2, %r0;
ld.param.u64 %rd0, [out]; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd0, %rd0, %rd1;
"""


def module(text: str, target: str = "sm_90", version: str = "8.6") -> str:
    """A PTX module with its head."""
    return f".version {version}\n.target {target}\n.address_size 64\n{text}\n"


def kernel(body: str, parameters: str = ".param .u64 out", before: str = "", target: str = "sm_90") -> str:
    """A module with one kernel `k`, whose registers are declared; `before` stands in front of it."""
    text = f"{before}\n.visible .entry k({parameters})\n{{{REGISTERS}{body}\nret;\n}}"
    return module(text, target)


@cache
def assembled(text: str) -> None:
    """Let ptxas judge the text for the target that it names."""
    target = text.split(".target ", 1)[1].split()[0]
    command = [str(PTXAS), f"-arch={target}", "-o", "/dev/null", "-O0", "-"]
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout


def loaded(text: str) -> LoadedProgram:
    """The module in the machine; ptxas has accepted it."""
    if not PTXAS.exists():
        pytest.skip("ptxas is not installed; the dev extra brings it (nvidia-cuda-nvcc)")
    assembled(text)
    return load(text.encode(), checks=None)
