"""The second half of a link, top to bottom: from the final program to proven images and the fat binary.

`Program -> list[CodegenJob] -> list[CodegenResult] -> fat binary`; the first half is `rglink.link`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from rglink.arch import Target
from rglink.diagnostics import Diagnostics, UsageError
from rglink.nvjitlink.backends import Backend
from rglink.nvjitlink.job import CodegenJob, CodegenResult, Program, Route
from rglink.nvjitlink.pack import pack_fatbin
from rglink.nvjitlink.prove import prove
from rglink.options import Emit, LinkOptions
from rglink.trace import Trace


@dataclass(frozen=True)
class Images:
    """`results` are proven, one for each target that the outputs need; `fatbin` is b"" unless asked for."""

    results: tuple[CodegenResult, ...]
    fatbin: bytes


def generate_images(
    program: Program, options: LinkOptions, backend: Backend, diags: Diagnostics, trace: Trace
) -> Images:
    """From the final program to proven images: the second half of a link. The backend runs NVIDIA's tools.

    Raises:
        LinkFailed: an image does not hold what was linked.
        UsageError: a single cubin was asked for and not one architecture.
        ToolError: a tool failed, crashed, or overran its budget.
    """
    with trace.phase("codegen"):
        jobs = plan_codegen(program, options)
        results = backend.run(jobs, options.jobs or len(os.sched_getaffinity(0)))
    with trace.phase("prove"):
        prove(results, program.kernels, program.variables, diags)
        diags.checkpoint()
    with trace.phase("pack"):
        wanted = [result for result in results if result.target in options.targets]
        fatbin = pack_fatbin(wanted, os.path.basename(options.output)) if "fatbin" in options.emit else b""
    return Images(tuple(results), fatbin)


def plan_codegen(program: Program, options: LinkOptions) -> list[CodegenJob]:
    """One job per image that the outputs need.

    Raises:
        UsageError: a single cubin was asked for and not one architecture.
    """
    route: Route = "nvvm" if options.codegen == "nvvm" else "llvm"
    name = os.path.basename(options.output)
    return [
        CodegenJob(
            name, target, route, program.bitcode, program.kernels, program.variables, options.opt_level, program.debug
        )
        for target in needed_targets(options)
    ]


def needed_targets(options: LinkOptions) -> list[Target]:
    """The targets whose images the outputs hold, sorted."""
    needed: set[Target] = set(options.targets) if "fatbin" in options.emit else set()
    for kind in options.emit:
        if kind in ("cubin", "ptx"):
            needed.add(single_target(options, kind))
    return sorted(needed, key=lambda target: target.sort_key)


def single_target(options: LinkOptions, kind: Emit) -> Target:
    """The target of a lone `.cubin`, or of a lone `.ptx`: the lowest `compute_` asked for, else the lowest arch.

    Raises:
        UsageError: a cubin was asked for and there is not exactly one `sm_` target.
    """
    if kind == "ptx":
        asked = [target for target in options.targets if target.kind == "ptx"]
        return asked[0] if asked else Target(options.targets[0].arch, "ptx")
    cubins = [target for target in options.targets if target.kind == "cubin"]
    if len(cubins) != 1:
        names = ", ".join(target.name for target in cubins) or "none"
        raise UsageError(f"a .cubin holds one architecture: {names} were asked for", cure="--arch sm_90, or a .fatbin")
    return cubins[0]
