"""What both routes to machine code owe a program: its floating point, its bounds, its lines, its names."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from rglink.arch import parse_arch, parse_arch_list
from rglink.diagnostics import InputError, ToolError
from rglink.ir import Module
from rglink.nvjitlink import llvm_route
from rglink.nvjitlink.job import CodegenJob, Route

from .support import ROUTES, jobs, ptx, run, tool

EMPTY = "define ptx_kernel void @k() {\n  ret void\n}\n"
PRODUCTS = """
define ptx_kernel void @k(ptr %p, float %f, double %d) {
  %x = load float, ptr %p
  %m = fmul float %x, %f
  %s = fadd float %m, %x
  store float %s, ptr %p
  %q = getelementptr i8, ptr %p, i64 8
  %y = load double, ptr %q
  %n = fmul double %y, %d
  %t = fsub double %n, %y
  store double %t, ptr %q
  ret void
}
"""


@pytest.mark.parametrize("route", ROUTES)
def test_products_and_sums_are_not_contracted(route: Route, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert not re.search(r"\bfma\.", ptx(PRODUCTS, "90", route))
    for result in run(jobs(PRODUCTS, "sm_75,sm_90,sm_120", route)):
        path = tmp_path_factory.mktemp("cubin") / "k.cubin"
        path.write_bytes(result.image)
        code = tool("nvdisasm", path)
        assert "FMUL" in code
        assert not re.search(r"\b[FD]FMA\b", code)


@pytest.mark.parametrize("route", ROUTES)
def test_launch_bounds_reach_the_ptx(route: Route) -> None:
    ir = EMPTY.replace("() {", "() #0 {") + (
        'attributes #0 = { "nvvm.maxntid"="128,2,1" "nvvm.minctasm"="3" "nvvm.maxnreg"="40" }\n'
    )
    text = ptx(ir, "80", route)
    assert re.search(r"\.maxntid 128, 2, 1\n\.minnctapersm 3\n\.maxnreg 40\n", text)
    text = ptx(ir.replace('"nvvm.maxntid"="128,2,1"', '"nvvm.reqntid"="64,1,1"'), "80", route)
    assert ".reqntid 64, 1, 1" in text


@pytest.mark.parametrize(
    ("arch", "version"),
    [("75", "6.3"), ("80", "7.0"), ("89", "7.8"), ("90", "7.8"), ("90a", "8.0"), ("100", "8.6"), ("120", "8.7")],
)
def test_ptx_is_of_the_lowest_version(arch: str, version: str) -> None:
    text = ptx(EMPTY, arch, "llvm")
    assert f".version {version}\n.target sm_{arch}\n" in text
    assert not text.endswith("\0")


@pytest.mark.parametrize(
    "instruction",
    ['call void asm sideeffect "fence.proxy.alias;", "~{memory}"()', "call void @llvm.nvvm.fence.proxy.alias()"],
)
def test_a_newer_instruction_takes_the_next_version(instruction: str) -> None:
    """PTX 7.5 knows it: ptxas says so of inline PTX, LLVM only fails to select the intrinsic."""
    ir = f"define ptx_kernel void @k() {{\n  {instruction}\n  ret void\n}}\n"
    ir = f"declare void @llvm.nvvm.fence.proxy.alias()\n{ir}"
    text = ptx(ir, "75", "llvm")
    assert ".version 7.8\n.target sm_75\n" in text
    assert "fence.proxy.alias;" in text
    assert ".version 7.8" in ptx(ir, "90", "llvm")


def test_what_no_version_knows_is_an_error_with_the_tools_words() -> None:
    ir = 'define ptx_kernel void @k() {\n  call void asm sideeffect "frob.u32;", ""()\n  ret void\n}\n'
    for route in ROUTES:
        with pytest.raises(ToolError) as caught:
            run(jobs(ir, "sm_90", route))
        said = caught.value.diagnostic
        assert said.message == "test for sm_90: nvJitLink: ERROR_PTX_COMPILE (4)"
        assert "Not a name of any known instruction: 'frob'" in "\n".join(said.places)
        assert route == "nvvm" or "  in k: frob.u32;" in said.places
        assert said.places[-1].startswith("nvJitLink options: -arch=sm_90 ")


def test_ptx_that_nobody_assembles_is_checked_too() -> None:
    ir = 'define ptx_kernel void @k() {\n  call void asm sideeffect "frob.u32;", ""()\n  ret void\n}\n'
    with pytest.raises(ToolError, match="test for compute_90: nvJitLink"):
        run(jobs(ir, "compute_90", "llvm"))


def test_an_instruction_of_a_newer_architecture_is_an_error() -> None:
    ir = 'define ptx_kernel void @k() {\n  call void asm sideeffect "barrier.cluster.arrive;", ""()\n  ret void\n}\n'
    with pytest.raises(ToolError) as caught:
        run(jobs(ir, "sm_80,sm_90", "llvm"))
    assert "requires .target sm_90 or higher" in "\n".join(caught.value.diagnostic.places)


LINES = (
    "define ptx_kernel void @k(ptr %p) !dbg !4 {\n  store i32 1, ptr %p, !dbg !5\n  ret void, !dbg !5\n}\n"
    "!llvm.dbg.cu = !{!0}\n!llvm.module.flags = !{!3}\n"
    "!0 = distinct !DICompileUnit(language: DW_LANG_Rust, file: !1, emissionKind: DebugDirectivesOnly)\n"
    '!1 = !DIFile(filename: "src/a.rs", directory: ".")\n!2 = !DISubroutineType(types: !{null})\n'
    '!3 = !{i32 2, !"Debug Info Version", i32 3}\n'
    '!4 = distinct !DISubprogram(name: "k", file: !1, line: 1, type: !2, unit: !0, spFlags: DISPFlagDefinition)\n'
    "!5 = !DILocation(line: 7, column: 3, scope: !4)\n"
)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("arch", ["75", "90", "120"])
def test_line_tables_reach_ptx_and_cubin(route: Route, arch: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    results = run(jobs(LINES, f"sm_{arch},compute_{arch}", route, debug="lineinfo"))
    cubin, text = (result.image for result in results)
    if results[0].target.kind == "ptx":
        cubin, text = text, cubin
    assert re.search(rb"\.loc\s+1 7 3", text)
    assert b", debug" not in text
    path = tmp_path_factory.mktemp("cubin") / "k.cubin"
    path.write_bytes(cubin)
    assert re.search(r'File ".*a\.rs", line 7', tool("nvdisasm", "-g", path))


def test_line_tables_take_the_version_that_has_them() -> None:
    assert llvm_route.ptx_versions(parse_arch("sm_75"), "none")[0] == 63
    assert llvm_route.ptx_versions(parse_arch("sm_75"), "lineinfo")[0] == 70
    assert llvm_route.ptx_versions(parse_arch("sm_120"), "lineinfo")[0] == 87


@pytest.mark.parametrize("route", ROUTES)
def test_the_same_job_gives_the_same_bytes(route: Route) -> None:
    wanted = jobs(PRODUCTS, "sm_75,sm_90,compute_90", route)
    first = run(wanted)
    assert [result.image for result in run(wanted[::-1])[::-1]] == [result.image for result in first]


def test_a_cubin_comes_with_the_ptx_it_was_made_of() -> None:
    results = {result.target.name: result for result in run(jobs(PRODUCTS, "sm_90,compute_90", "llvm"))}
    assert results["sm_90"].ptx == results["compute_90"].image


def test_a_crash_of_llvm_names_the_program() -> None:
    # LLVM 22 has no float-to-integer conversion of 128 bits for this target, and aborts.
    ir = (
        "define ptx_kernel void @k(ptr %p, float %f) {\n  %i = fptosi float %f to i128\n"
        "  store i128 %i, ptr %p\n  ret void\n}\n"
    )
    with pytest.raises(ToolError) as caught:
        run(jobs(ir, "sm_90", "llvm"))
    assert re.match(r"test for sm_90: was killed by SIG(ABRT|SEGV)|test for sm_90: ended", str(caught.value))
    assert caught.value.diagnostic.places


def test_an_internal_kernel_is_refused_on_the_nvvm_route() -> None:
    ir = "@u = internal global i32 0\n" + EMPTY
    with pytest.raises(InputError, match="u: is internal, wanted a name that the host can see"):
        run(jobs(ir, "sm_90", "nvvm", variables=["u"]))


@pytest.mark.parametrize("route", ROUTES)
def test_a_layout_is_given_to_ir_without_one(route: Route) -> None:
    ir = (
        'target triple = "nvptx64-nvidia-cuda"\n'
        "define ptx_kernel void @k(ptr %p) {\n"
        "  %q = getelementptr {i32, i64}, ptr %p, i64 1, i32 1\n  store i64 9, ptr %q\n  ret void\n}\n"
    )
    bitcode = Module.parse_text(ir, "a.ll").bitcode()
    (result,) = run([CodegenJob("a", target, route, bitcode, ("k",), ()) for target in parse_arch_list("compute_80")])
    assert re.search(rb"st[.a-z0-9]*\s+\[%rd\d+\+24\]", result.image)  # 16 for {i32, i64}, 8 for its i64


FULL = LINES.replace("DebugDirectivesOnly", "FullDebug")
TWO_UNITS = FULL.replace("!llvm.dbg.cu = !{!0}", "!llvm.dbg.cu = !{!0, !6}") + (
    "!6 = distinct !DICompileUnit(language: DW_LANG_Rust, file: !1, emissionKind: FullDebug)\n"
)


@pytest.mark.parametrize("route", ROUTES)
def test_full_debug_info_links(route: Route) -> None:
    plain, full = (run(jobs(LINES, "sm_90", route))[0], run(jobs(FULL, "sm_90", route, debug="full"))[0])
    assert b".debug_info" in full.image
    assert b".debug_info" not in plain.image


def test_many_units_with_full_debug_info() -> None:
    assert run(jobs(TWO_UNITS, "sm_90", "llvm", debug="full"))
    with pytest.raises(ToolError) as caught:
        run(jobs(TWO_UNITS, "sm_90", "nvvm", debug="full"))
    assert caught.value.diagnostic.cure == "--lineinfo, or -g with --codegen=llvm"
    assert run(jobs(TWO_UNITS.replace("FullDebug", "DebugDirectivesOnly"), "sm_90", "nvvm", debug="lineinfo"))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("level", [0, 1, 2])
def test_every_optimization_level_links(route: Route, level: int) -> None:
    assert run([replace(job, opt_level=level) for job in jobs(PRODUCTS, "sm_90,compute_75", route)])
