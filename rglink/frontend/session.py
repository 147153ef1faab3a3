"""What runs in a link's supervised child: the link, then its outputs and reports as plain data."""

from __future__ import annotations

from pathlib import Path

from rglink import ir
from rglink.diagnostics import Diagnostics, ToolError
from rglink.frontend.outputs import OutputFile
from rglink.frontend.reports import render_reports
from rglink.link import Linked, link, single_target
from rglink.nvjitlink.backends import LocalBackend
from rglink.options import Emit, LinkOptions
from rglink.trace import Stopped, Trace


def link_and_report(options: LinkOptions, diags: Diagnostics, trace: Trace) -> tuple[list[OutputFile], str]:
    """Link; returns the files to write and the text for stdout.

    Raises:
        As `link`, but for `Stopped`.
    """
    ir.watchers.append(trace.note)
    backend = LocalBackend()
    if {"fatbin", "cubin", "ptx"} & set(options.emit):
        backend.load_meanwhile()
    try:
        linked = link(options, backend, _sysroot_rlibs, diags, trace)
    except Stopped as stopped:
        return [], f"stopped after {stopped}\n"
    files = [
        OutputFile(_path_of(options, kind), _contents(linked, options, kind), _lifted(options, kind))
        for kind in options.emit
    ]
    reports, more = render_reports(linked, options, diags, trace)
    return files + more, reports


def _sysroot_rlibs(key: str) -> list[str]:
    """core, alloc and compiler_builtins for the device, built when they are not there yet.

    Raises:
        ToolError: crates were compiled against a sysroot that is gone and that this machine's rustc does not make.
    """
    from rglink.frontend.rustc import find_rustc
    from rglink.frontend.sysroot import cached_sysroot, device_sysroot, sysroot_key

    sysroot = cached_sysroot(key) if key else None
    if sysroot is None:
        rustc = find_rustc(ir.LLVM_MAJOR)
        if key and sysroot_key(rustc) != key:
            raise ToolError(
                f"the core that the crates were compiled against is not there, and rustc {rustc.version} makes another",
                slug="no-sysroot",
                cure="compile the crates again, or set RGLINK_RUSTC to the rustc that compiled them",
            )
        sysroot = device_sysroot(rustc)
    return [str(path) for path in sysroot.rlibs]


def _path_of(options: LinkOptions, kind: Emit) -> str:
    """OUT for its own kind; others take OUT's name with their ending."""
    return options.output if _is_main(options, kind) else str(Path(options.output).with_suffix(f".{kind}"))


def _is_main(options: LinkOptions, kind: Emit) -> bool:
    return options.output.endswith(f".{kind}") or len(options.emit) == 1


def _lifted(options: LinkOptions, kind: Emit) -> str:
    """cargo lifts the file that rustc names out of its `deps` folder; we lift the others."""
    path = Path(_path_of(options, kind))
    if not options.driven_by_rustc or str(path) == options.output or path.parent.name != "deps":
        return ""
    return str(path.parent.parent / path.name)


def _contents(linked: Linked, options: LinkOptions, kind: Emit) -> bytes:
    if kind == "fatbin":
        return linked.fatbin
    if kind == "ll":
        return linked.module.text().encode("utf-8", "surrogateescape")
    if kind == "bc":
        return linked.module.bitcode()
    if kind == "ltoir":
        return _ltoir(linked, options)
    target = single_target(options, kind)
    return next(result.image for result in linked.results if result.target == target)


def _ltoir(linked: Linked, options: LinkOptions) -> bytes:
    """The program as LTO-IR for the lowest architecture asked for: what newer ones can still link."""
    from dataclasses import replace

    from rglink.link import plan_codegen
    from rglink.nvjitlink.nvvm_route import make_ltoir
    from rglink.worker import run_supervised

    (job,) = plan_codegen(linked, replace(options, emit=("ptx",), codegen="nvvm", targets=options.targets[:1]))
    return run_supervised(f"{job.label}: libNVVM", lambda: make_ltoir(job))
