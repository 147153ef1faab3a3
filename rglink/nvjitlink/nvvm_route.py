"""The nvvm route: libNVVM makes LTO-IR of the program, nvJitLink machine code (or PTX) of that."""

from __future__ import annotations

from rglink.diagnostics import ToolError
from rglink.ir import Module
from rglink.irtext import ModuleText
from rglink.nvjitlink.jitlink import JitInput, link_image
from rglink.nvjitlink.job import CodegenJob, CodegenResult
from rglink.nvjitlink.libraries import require_latest_ir
from rglink.nvjitlink.nvvm import compile_ltoir
from rglink.nvjitlink.nvvm_ir import prepare


def compile_job(job: CodegenJob) -> CodegenResult:
    """Run one job; call it in a supervised child, once.

    Raises:
        ToolError: libNVVM or nvJitLink failed, or is older than 13.5.
        InputError: a kernel or variable of the job is not visible in its IR.
    """
    require_latest_ir("nvjitlink", option_refused=False)
    ltoir = JitInput(job.name, "ltoir", make_ltoir(job))
    try:
        image, log = link_image(job.label, [ltoir], _options(job))
    except ToolError as error:
        said = error.diagnostic
        if any("debug compile units is more than 1" in line for line in said.places):
            cure = "--lineinfo, or -g with --codegen=llvm"
            raise ToolError(said.message, *said.places, slug=said.slug, cure=cure) from None
        raise
    return CodegenResult(job.target, image, None, log)


def make_ltoir(job: CodegenJob) -> bytes:
    """The job's program as LTO-IR for its architecture (what `-o app.ltoir` writes).

    Raises:
        As `compile_job`.
    """
    text = ModuleText.parse(Module.parse_bitcode(job.bitcode, job.name).text())
    prepare(text, job.kernels, job.variables, job.target.arch)
    return compile_ltoir(job.label, text.render(), job.target.arch, job.fast_math)


def _options(job: CodegenJob) -> list[str]:
    """nvJitLink's own floating-point flags count: LTO-IR keeps none."""
    options = [f"-arch={job.target.arch.sm}", "-lto", "-nvvm-latest", f"-fma={int(job.fast_math)}"]
    if job.target.kind == "ptx":
        options.append("-ptx")
    if job.debug == "full":
        return [*options, "-g"]  # which means -opt=0 too, and refuses to hear it twice
    # LLVM has optimized; libNVVM's default takes three times as long and does not end on some of core.
    options.append("-Xnvvm=-opt=0")
    if job.debug == "lineinfo":
        options.append("-lineinfo")
    if job.opt_level < 3:
        options.append(f"-Xptxas=-O{job.opt_level}")  # nvJitLink itself knows -O0 and -O3 only
    return options
