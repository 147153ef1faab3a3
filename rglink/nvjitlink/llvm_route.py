"""The llvm route: LLVM's NVPTX back end makes PTX of the program, nvJitLink machine code of that.

PTX is written at the lowest version that works, so that older drivers load it too.
"""

from __future__ import annotations

import re

from rglink.arch import Arch
from rglink.diagnostics import ToolError
from rglink.ir import Module
from rglink.irtext import ModuleText
from rglink.nvjitlink.atomics import lower_atomics, widen_scopes
from rglink.nvjitlink.jitlink import JitInput, link_image
from rglink.nvjitlink.job import CodegenJob, CodegenResult

# LLVM's own layout for nvptx64 (`NVPTXTargetInfo`), for IR that gives none: the generic default aligns i64 to 4.
DATA_LAYOUT = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
# PTX versions (times 10) to climb when the lowest of an architecture lacks what a program uses.
_PTX_STEPS = (70, 78, 80, 83, 86, 87, 88, 90)
_LINE_TABLES_PTX = 70  # below it: "Defining labels in .section requires PTX ISA 7.0"
_NEEDS_PTX = re.compile(r"requires (?:PTX ISA )?\.version (\d+)\.(\d+)|PTX ISA (?:version )?(\d+)\.(\d+) or later")


def ptx_versions(arch: Arch, debug: str) -> tuple[int, ...]:
    """PTX versions (times 10) to try in order; later ones only if LLVM or ptxas fails with the one before."""
    first = max(arch.lowest_ptx, _LINE_TABLES_PTX if debug != "none" else 0)
    return (first, *(version for version in _PTX_STEPS if version > first))


def compile_job(job: CodegenJob, ptx_version: int) -> CodegenResult:
    """Run one job at one PTX version; call it in a supervised child, once: LLVM aborts on what it cannot select.

    Raises:
        ToolError: nvJitLink failed.
        InputError: an atomic operation with a scope that does not exist.
    """
    ptx = emit(job, ptx_version).encode()
    if job.target.kind == "ptx":
        return CodegenResult(job.target, ptx, None, "")
    image, log = link_image(job.label, [JitInput(f"{job.name}.ptx", "ptx", ptx)], _options(job))
    return CodegenResult(job.target, image, ptx, log)


def emit(job: CodegenJob, ptx_version: int) -> str:
    """The job's program as PTX."""
    arch = job.target.arch
    module = Module.parse_bitcode(job.bitcode, job.name)
    text = module.text()
    widen = 'syncscope("cluster")' in text and arch.number < 90
    if " atomicrmw " in text or widen or "target datalayout" not in text:
        items = ModuleText.parse(text)
        widen_scopes(items, arch)
        lower_atomics(items, arch)
        layout = "" if "target datalayout" in text else f'target datalayout = "{DATA_LAYOUT}"\n'
        module.replace(layout + items.render())
    return module.emit_ptx(arch.sm, f"+ptx{ptx_version}", job.opt_level)


def wanted_ptx(error: ToolError) -> int:
    """The PTX version (times 10) that ptxas asks for in its words, 0 when it asks for none."""
    found = [
        int(match[1] or match[3]) * 10 + int(match[2] or match[4])
        for place in error.diagnostic.places
        for match in _NEEDS_PTX.finditer(place)
    ]
    return max(found, default=0)


def _options(job: CodegenJob) -> list[str]:
    options = [f"-arch={job.target.arch.sm}", f"-fma={int(job.fast_math)}"]
    if job.debug == "full":
        options.append("-g")
    elif job.debug == "lineinfo":
        options.append("-lineinfo")
    if job.opt_level < 3:
        options.append(f"-O{job.opt_level}")
    return options
