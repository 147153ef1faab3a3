"""The proof of contents: a double at the codegen seam damages, drops or swaps what a real backend made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rglink.diagnostics import Diagnostics, LinkFailed
from rglink.images import generate_images
from rglink.link import build_program
from rglink.nvjitlink.backends import LocalBackend
from rglink.nvjitlink.job import CodegenJob, CodegenResult, Program
from rglink.options import parse_options
from rglink.trace import Trace

PROGRAM = """\
target triple = "nvptx64-nvidia-cuda"
@TABLE = global [2 x i32] zeroinitializer
define ptx_kernel void @first(ptr %out) {
  store i32 1, ptr %out
  ret void
}
define ptx_kernel void @second(ptr %out) {
  store i32 2, ptr %out
  ret void
}
"""

Change = Callable[[list[CodegenJob], list[CodegenResult]], list[CodegenResult]]


@dataclass
class Double:
    """A real backend whose results pass through `change`."""

    change: Change

    def run(self, jobs: Sequence[CodegenJob], parallel: int) -> list[CodegenResult]:
        return self.change(list(jobs), LocalBackend().run(jobs, parallel))


def run_link(folder: Path, change: Change) -> tuple[Program | None, str]:
    (folder / "a.ll").write_text(PROGRAM)
    words = [str(folder / "a.ll"), "-o", str(folder / "app.fatbin"), "--arch", "sm_75,sm_90,compute_75"]
    diags = Diagnostics()
    try:
        options = parse_options(words, tuple)
        program = build_program(options, lambda _: [], diags, Trace()).program
        generate_images(program, options, Double(change), diags, Trace())
    except LinkFailed:
        return None, "\n".join(item.render() for item in diags.items)
    return program, "\n".join(item.render() for item in diags.items)


def of_other_kernels(jobs: list[CodegenJob], kernels: str) -> bytes:
    """What a backend makes of the program without some kernel, for sm_90."""
    from rglink.ir import Module

    (job,) = [job for job in jobs if job.target.name == "sm_90"]
    module = Module.parse_bitcode(job.bitcode, "double")
    text = module.text().replace("@second", kernels)
    changed = Module.parse_text(text, "double").bitcode()
    return LocalBackend().run([replace(job, bitcode=changed)], 1)[0].image


def test_an_honest_backend_passes(tmp_path: Path) -> None:
    linked, said = run_link(tmp_path, lambda jobs, results: results)
    assert said == ""
    assert linked is not None
    assert linked.kernels == ("first", "second")
    assert linked.variables == ("TABLE",)


def test_a_dropped_kernel_is_named_with_its_architecture(tmp_path: Path) -> None:
    def swap(jobs: list[CodegenJob], results: list[CodegenResult]) -> list[CodegenResult]:
        image = of_other_kernels(jobs, "@third")
        return [replace(r, image=image) if r.target.name == "sm_90" else r for r in results]

    linked, said = run_link(tmp_path, swap)
    assert linked is None
    assert said == (
        "rglink: error: sm_90: the image's kernels are not those that were linked [proof-failed]\n"
        ">>> missing: second\n"
        ">>> not asked for: third"
    )


@pytest.mark.parametrize("keep", [0.0, 0.2, 0.5, 0.9])
def test_a_truncated_cubin(tmp_path: Path, keep: float) -> None:
    def cut(jobs: list[CodegenJob], results: list[CodegenResult]) -> list[CodegenResult]:
        return [
            replace(r, image=r.image[: int(len(r.image) * keep)]) if r.target.name == "sm_75" else r for r in results
        ]

    linked, said = run_link(tmp_path, cut)
    assert linked is None
    assert said.startswith("rglink: error: sm_75: the link made an image that cannot be read: ")


def test_a_cubin_for_another_architecture(tmp_path: Path) -> None:
    def swap(jobs: list[CodegenJob], results: list[CodegenResult]) -> list[CodegenResult]:
        images = {r.target.name: r.image for r in results}
        return [replace(r, image=images["sm_75"]) if r.target.name == "sm_90" else r for r in results]

    linked, said = run_link(tmp_path, swap)
    assert linked is None
    assert "sm_90" in said
    assert "wanted 90" in said


def test_ptx_that_lost_a_variable(tmp_path: Path) -> None:
    def swap(jobs: list[CodegenJob], results: list[CodegenResult]) -> list[CodegenResult]:
        return [
            replace(r, image=r.image.replace(b".visible .global", b".global")) if r.target.kind == "ptx" else r
            for r in results
        ]

    linked, said = run_link(tmp_path, swap)
    assert linked is None
    assert said == (
        "rglink: error: compute_75: the image's variables are not those that were linked [proof-failed]\n"
        ">>> missing: TABLE"
    )
