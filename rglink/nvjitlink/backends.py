"""Who runs code generation: the seam between a link and the machines it uses."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from rglink import ir, worker
from rglink.arch import Target
from rglink.diagnostics import ToolError
from rglink.nvjitlink import llvm_route, nvvm_route
from rglink.nvjitlink.job import CodegenJob, CodegenResult
from rglink.nvjitlink.libraries import load

_HEADER = struct.Struct("<I")  # length of the JSON before the image and the PTX


class Backend(Protocol):
    """Runs jobs wherever it likes."""

    def run(self, jobs: Sequence[CodegenJob], parallel: int) -> list[CodegenResult]:
        """The results in the order of `jobs`, at most `parallel` of them worked on at once.

        Raises:
            ToolError: a tool failed, crashed, hung or took too much memory; the message names the job.
        """
        ...


class LocalBackend:
    """Runs jobs in supervised children of this process."""

    def prepare(self, route: str) -> None:
        """Load the libraries of a route here, once, so that no child has to; beside other work if there is any.

        Raises:
            ToolError: a library is missing.
        """
        ir.preload()
        load("nvjitlink")
        load("nvfatbin")
        if route == "nvvm":
            load("nvvm")

    def run(self, jobs: Sequence[CodegenJob], parallel: int) -> list[CodegenResult]:
        """As `Backend.run`."""
        self.prepare("nvvm" if any(job.route == "nvvm" for job in jobs) else "llvm")
        groups = _share_ptx(jobs)
        answers = worker.run_parallel([_task([jobs[index] for index in group]) for group in groups], parallel)
        results: dict[int, CodegenResult] = {}
        for group, answer in zip(groups, answers, strict=True):
            decoded = _decode(answer, [jobs[index].target for index in group])
            results.update(zip(group, decoded, strict=True))
        return [results[index] for index in range(len(jobs))]


def _share_ptx(jobs: Sequence[CodegenJob]) -> list[list[int]]:
    """Positions of jobs by child: one that wants the PTX of an architecture goes with the one that assembles it."""
    groups: list[list[int]] = []
    cubins = {_without_kind(job): index for index, job in enumerate(jobs) if job.target.kind == "cubin"}
    place: dict[int, list[int]] = {}
    for index, job in enumerate(jobs):
        first = cubins.get(_without_kind(job), index) if job.route == "llvm" else index
        if first not in place:
            place[first] = []
            groups.append(place[first])
        place[first].append(index)
    return groups


def _without_kind(job: CodegenJob) -> CodegenJob:
    return replace(job, target=Target(job.target.arch, "cubin"))


def _task(jobs: list[CodegenJob]) -> worker.Task:
    """One child's work: jobs that differ in nothing but the kind of their target."""
    first = jobs[0]
    what = f"{first.name} for {', '.join(job.target.name for job in jobs)}"
    if first.route == "nvvm":
        return worker.Task(what, lambda: _encode([nvvm_route.compile_job(first)]))
    versions = llvm_route.ptx_versions(first.target.arch, first.debug)
    return _ptx_task(what, jobs, versions)


def _ptx_task(what: str, jobs: list[CodegenJob], versions: Sequence[int]) -> worker.Task:
    def run() -> bytes:
        return _encode(llvm_route.compile_jobs(jobs, versions[0]))

    def climb(error: ToolError) -> worker.Task | None:
        wanted = llvm_route.wanted_ptx(error, versions[0])
        higher = [version for version in versions[1:] if version >= wanted] if wanted else []
        return _ptx_task(what, jobs, higher) if higher else None

    return worker.Task(what, run, retry=climb)


def _encode(results: Sequence[CodegenResult]) -> bytes:
    sizes = [(len(result.image), -1 if result.ptx is None else len(result.ptx), result.log) for result in results]
    header = json.dumps(sizes).encode()
    blobs = [part for result in results for part in (result.image, result.ptx or b"")]
    return b"".join([_HEADER.pack(len(header)), header, *blobs])


def _decode(data: bytes, targets: Sequence[Target]) -> list[CodegenResult]:
    (length,) = _HEADER.unpack_from(data)
    position = _HEADER.size + length
    results: list[CodegenResult] = []
    for target, (image_size, ptx_size, log) in zip(targets, json.loads(data[_HEADER.size : position]), strict=True):
        image_end = position + image_size
        ptx_end = image_end + max(ptx_size, 0)
        ptx = data[image_end:ptx_end] if ptx_size >= 0 else None
        results.append(CodegenResult(target, data[position:image_end], ptx, log))
        position = ptx_end
    return results
