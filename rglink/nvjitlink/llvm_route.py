"""The llvm route: LLVM's NVPTX back end makes PTX of the program, nvJitLink machine code of that.

PTX is written at the lowest version that works, so that older drivers load it too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rglink.arch import Arch
from rglink.diagnostics import ToolError
from rglink.ir import DATA_LAYOUT, Module
from rglink.irtext import ModuleText
from rglink.nvjitlink import float_signs
from rglink.nvjitlink.atomics import lower_atomics, widen_scopes
from rglink.nvjitlink.jitlink import JitInput, link_image
from rglink.nvjitlink.job import CodegenJob, CodegenResult
from rglink.nvjitlink.local_atomics import make_local_atomics_plain

# PTX versions (times 10) to climb when the lowest of an architecture lacks what a program uses.
_PTX_STEPS = (70, 78, 80, 83, 86, 87, 88, 90)
_LINE_TABLES_PTX = 70  # below it: "Defining labels in .section requires PTX ISA 7.0"
_PTX_LINE = re.compile(r"\bptx input, line (\d+);")
_PTX_FUNCTION = re.compile(r"(?:\.\w+ )*\.(?:entry|func)\s+(?:\([^)]*\)\s*)?([\w$%]+)")


def ptx_versions(arch: Arch, debug: str) -> tuple[int, ...]:
    """PTX versions (times 10) to try in order; later ones only if LLVM or ptxas fails with the one before."""
    first = max(arch.lowest_ptx, _LINE_TABLES_PTX if debug != "none" else 0)
    return (first, *(version for version in _PTX_STEPS if version > first))


def compile_jobs(jobs: Sequence[CodegenJob], ptx_version: int) -> list[CodegenResult]:
    """Run jobs that differ in the kind of their target only, at one PTX version.

    Call it in a supervised child, once: LLVM aborts on what it cannot select. PTX is always assembled, also when
    nobody asked for the cubin: what ptxas refuses would fail on the user's machine.

    Raises:
        ToolError: nvJitLink failed.
        InputError: an atomic operation with a scope that does not exist.
    """
    first = jobs[0]
    ptx = emit(first, ptx_version).encode()
    # -Ofc=max: the fastest compilation there is, because nobody will run this cubin.
    only_proof = all(job.target.kind == "ptx" for job in jobs)
    options = [f"-arch={first.target.arch.sm}", "-Ofc=max"] if only_proof else _options(first)
    try:
        cubin, log = link_image(first.label, [JitInput(f"{first.name}.ptx", "ptx", ptx)], options)
    except ToolError as error:
        raise _with_source(error, ptx.decode().splitlines()) from None
    return [
        CodegenResult(job.target, cubin, ptx, log)
        if job.target.kind == "cubin"
        else CodegenResult(job.target, ptx, None, log)
        for job in jobs
    ]


def emit(job: CodegenJob, ptx_version: int) -> str:
    """The job's program as PTX."""
    arch = job.target.arch
    module = Module.parse_bitcode(job.bitcode, job.name)
    text = module.text()
    words = (" atomicrmw ", " cmpxchg ", "syncscope(", *float_signs.WORDS)
    if any(word in text for word in words) or "target datalayout" not in text:
        items = ModuleText.parse(text)
        widen_scopes(items, arch)
        make_local_atomics_plain(items)
        lower_atomics(items, arch)
        float_signs.make_float_signs_exact(items)
        layout = "" if "target datalayout" in text else f'target datalayout = "{DATA_LAYOUT}"\n'
        module.replace(layout + items.render())
    return module.emit_ptx(arch.sm, f"+ptx{ptx_version}", job.opt_level)


def wanted_ptx(error: ToolError, tried: int) -> int:
    """The PTX version (times 10) above `tried` that would cure `error` as far as it tells, 0 when none would."""
    lines = error.diagnostic.places
    wanted = [
        int(match[1]) * 10 + int(match[2])
        for line in lines
        for match in re.finditer(r"requires PTX ISA \.version (\d+)\.(\d+)", line)
    ]
    if any("Cannot select" in line for line in lines):  # LLVM does not say which version has the instruction
        wanted.append(tried + 1)
    return max((version for version in wanted if version > tried), default=0)


def _with_source(error: ToolError, ptx: Sequence[str]) -> ToolError:
    """The error with the function and the text of each PTX line that ptxas counts."""
    said = error.diagnostic
    places: list[str] = []
    for place in said.places:
        places.append(place)
        number = _PTX_LINE.search(place)
        if number and int(number[1]) <= len(ptx):
            index = int(number[1]) - 1
            heads = (match[1] for line in ptx[index::-1] if (match := _PTX_FUNCTION.match(line)))
            places.append(f"  in {next(heads, 'the module')}: {ptx[index].strip()}")
    return ToolError(said.message, *places, slug=said.slug, cure=said.cure)


def _options(job: CodegenJob) -> list[str]:
    options = [f"-arch={job.target.arch.sm}", f"-fma={int(job.fast_math)}"]
    if job.debug == "full":
        options.append("-g")
    elif job.debug == "lineinfo":
        options.append("-lineinfo")
    if job.opt_level < 3:
        options.append(f"-Xptxas=-O{job.opt_level}")  # nvJitLink itself knows -O0 and -O3 only
    return options
