"""The proof of contents notices whatever a code generator leaves out, adds or damages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rglink.arch import Target, parse_arch
from rglink.diagnostics import Diagnostics
from rglink.nvjitlink.backends import Backend, LocalBackend
from rglink.nvjitlink.job import CodegenJob, CodegenResult, Route
from rglink.nvjitlink.prove import prove, read_contents

from .support import ROUTES, jobs, run

PROGRAM = """
@TABLE = constant [4 x i32] [i32 1, i32 2, i32 3, i32 4], align 16
@COUNTER = global i32 0
@SCALE = addrspace(4) externally_initialized global float 1.0
@hidden = internal global i32 7
@tile = internal addrspace(3) global [64 x i32] undef
define ptx_kernel void @k1(ptr %p) {
  %1 = load i32, ptr @hidden
  store i32 %1, ptr %p
  store i32 %1, ptr addrspace(3) @tile
  call void @helper(ptr %p)
  ret void
}
define ptx_kernel void @k10(ptr %p) {
  store volatile i32 3, ptr @hidden
  ret void
}
define internal void @helper(ptr %p) noinline {
  store volatile i32 2, ptr %p
  ret void
}
"""
KERNELS = ["k1", "k10"]
VARIABLES = ["COUNTER", "SCALE", "TABLE"]
ARCHES = "sm_75,sm_90a,sm_100f,sm_120,compute_75,compute_120"


@pytest.mark.parametrize("route", ROUTES)
def test_a_whole_program_is_proven(route: Route) -> None:
    diags = Diagnostics()
    prove(run(jobs(PROGRAM, ARCHES, route, KERNELS, VARIABLES)), KERNELS, VARIABLES, diags)
    assert diags.items == []


@pytest.mark.parametrize("linkage", ["", "hidden ", "protected ", "weak ", "weak_odr "])
@pytest.mark.parametrize("route", ROUTES)
def test_a_kernel_that_nobody_marked_used_is_kept(route: Route, linkage: str) -> None:
    """Case 7: libNVVM and nvJitLink drop it without a word."""
    ir = f"define {linkage}ptx_kernel void @k(ptr %p) {{\n  store i32 1, ptr %p\n  ret void\n}}\n"
    diags = Diagnostics()
    prove(run(jobs(ir, "sm_75,sm_90,sm_120,compute_90", route)), ["k"], [], diags)
    assert diags.items == []


def _said(results: list[CodegenResult], kernels: Sequence[str], variables: Sequence[str]) -> list[str]:
    diags = Diagnostics()
    prove(results, kernels, variables, diags)
    assert {item.slug for item in diags.items} <= {"proof-failed"}
    return [item.render() for item in diags.items]


def test_every_difference_is_named() -> None:
    results = run(jobs(PROGRAM, "sm_90,compute_90", "llvm", KERNELS, VARIABLES))
    said = _said(results, ["k1", "k2", "k3"], ["TABLE", "COUNTER"])
    kernels = [
        "rglink: error: {}: the image's kernels are not those that were linked [proof-failed]",
        ">>> missing: k2",
        ">>> missing: k3",
        ">>> not asked for: k10",
    ]
    variables = [
        "rglink: error: {}: the image's variables are not those that were linked [proof-failed]",
        ">>> not asked for: SCALE",
    ]
    expected = ["\n".join(lines).format(result.target.name) for result in results for lines in (kernels, variables)]
    assert said == expected


def test_an_image_for_another_architecture_is_refused() -> None:
    results = run(jobs(PROGRAM, "sm_90,compute_90", "llvm", KERNELS, VARIABLES))
    for wrong in ("sm_90a", "sm_80"):
        moved = [replace(result, target=Target(parse_arch(wrong), result.target.kind)) for result in results]
        said = _said(moved, KERNELS, VARIABLES)
        assert len(said) == 2
        assert all(f"image: is for 90, wanted {wrong[3:]}" in text for text in said)


class Damaging:
    """A backend whose cubins arrive with bytes cut off or changed."""

    def __init__(self, inner: Backend, keep: int, changed: int | None = None) -> None:
        self._inner, self._keep, self._changed = inner, keep, changed

    def run(self, jobs: Sequence[CodegenJob], parallel: int) -> list[CodegenResult]:
        return [self._damage(result) for result in self._inner.run(jobs, parallel)]

    def _damage(self, result: CodegenResult) -> CodegenResult:
        image = bytearray(result.image[: self._keep])
        if self._changed is not None:
            image[self._changed] ^= 0xFF
        return replace(result, image=bytes(image))


@pytest.mark.parametrize(("keep", "changed"), [(0, None), (40, None), (2000, None), (10**6, 0), (10**6, 18)])
def test_a_damaged_cubin_fails(keep: int, changed: int | None) -> None:
    backend: Backend = Damaging(LocalBackend(), keep, changed)
    results = backend.run(jobs(PROGRAM, "sm_90", "llvm", KERNELS, VARIABLES), 1)
    (said,) = _said(results, KERNELS, VARIABLES)
    assert said.startswith("rglink: error: sm_90: the link made an image that cannot be read: cubin: ")


def test_an_empty_cubin_fails() -> None:
    """What nvJitLink gives with SUCCESS when it dropped every kernel."""
    (empty,) = run(jobs("define void @f() {\n  ret void\n}\n", "sm_90", "llvm", []))
    assert read_contents(empty).kernels == frozenset()
    (said,) = _said([empty], ["k1"], [])
    assert ">>> missing: k1" in said


def test_ptx_comments_and_names_in_strings_do_not_count() -> None:
    (result,) = run(jobs(PROGRAM, "compute_75", "llvm", KERNELS, VARIABLES))
    text = result.image + b"// .visible .entry ghost(\n/* .visible .global .u32 ghost2; */\n"
    assert read_contents(replace(result, image=text)) == read_contents(result)
    (said,) = _said([replace(result, image=result.image + b"\0")], KERNELS, VARIABLES)
    assert "ends in a NUL byte" in said


def test_helpers_of_the_tools_are_ignored() -> None:
    """`barrier.sync` without `.aligned` brings `__cuda_sm70_barrier_sync` on sm_75 and sm_80."""
    ir = (
        "define ptx_kernel void @k(ptr %p, i32 %b) convergent {\n"
        '  call void asm sideeffect "barrier.sync $0;", "r,~{memory}"(i32 %b) convergent\n  ret void\n}\n'
    )
    diags = Diagnostics()
    prove(run(jobs(ir, "sm_75,sm_80,sm_90", "llvm")), ["k"], [], diags)
    assert diags.items == []
